-- forward: what has come due.
-- delayed -> ready
-- KEYS  the bucket
-- ARGV  now ms or '' · how many at the most (<= 500) · the latest ms that it can be, or ''
-- gives how many were moved, the next due ms or -1, now ms, and the node's own clock, whatever was
--       given: unix us; -1 first when it is later than it can be
local now, own = clock(ARGV[1]), redis.call('TIME')
local own_us = tonumber(own[1]) * 1000000 + tonumber(own[2])
if has_jumped(now, ARGV[3]) then return {-1, -1, now, own_us} end
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
return {#digests, first_due() or -1, now, own_us}
