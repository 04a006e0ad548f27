-- forward: what has come due.
-- delayed -> ready
-- KEYS  the bucket
-- ARGV  now ms or '' · how many at the most (<= 500) · the latest ms that it can be, or ''
-- gives how many were moved, the next due ms or -1, now ms, how many us of the next ms have passed,
--       and the node's own ms, whatever was given; -1 first when it is later than it can be
local now = clock(ARGV[1])
if has_jumped(now, ARGV[3]) then return {-1, -1, now, 0, now} end
local digests = redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))
if #digests > 0 then
  local jobs = redis.call('HMGET', JOBS, unpack(digests))
  for _, job in ipairs(jobs) do flags_of(job or '\0') end    -- refused whole, or not at all
  redis.call('ZREM', DUE, unpack(digests))
  make_ready(digests, jobs)
  announce()
end
local aged = redis.call('ZRANGEBYSCORE', FLOORED, '-inf', now, 'LIMIT', 0, 100)
if #aged > 0 then
  redis.call('HDEL', FLOORS, unpack(aged))
  redis.call('ZREM', FLOORED, unpack(aged))
end
local us = ARGV[1] == '' and tonumber(redis.call('TIME')[2]) % 1000 or 0
return {#digests, first_due() or -1, now, us, clock('')}
