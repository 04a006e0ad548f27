-- forward: what has come due.
-- delayed -> ready
-- KEYS  the bucket
-- ARGV  now ms or '' · how many at the most (<= 500) · the latest ms that it can be, or ''
-- gives how many were moved, the next due ms or -1, now ms; -1 first when it is later than it can be
local now = clock(ARGV[1])
if has_jumped(now, ARGV[3]) then return {-1, -1, now} end
local digests = redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))
if #digests > 0 then
  local jobs = redis.call('HMGET', JOBS, unpack(digests))
  local holders = redis.call('HMGET', HOLDERS, unpack(digests))
  redis.call('ZREM', DUE, unpack(digests))
  local ready = {}
  for i, digest in ipairs(digests) do
    if jobs[i] and not holders[i] then
      local job = cmsgpack.unpack(jobs[i])
      ready[#ready + 1] = 0
      ready[#ready + 1] = ready_member(digest, job)
      queue_topic(job[PRIORITY], job[TOPIC])
    end
  end
  if #ready > 0 then redis.call('ZADD', READY, unpack(ready)) end
  announce()
end
local aged = redis.call('ZRANGEBYSCORE', FLOORED, '-inf', now, 'LIMIT', 0, 100)
if #aged > 0 then
  redis.call('HDEL', FLOORS, unpack(aged))
  redis.call('ZREM', FLOORED, unpack(aged))
end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
return {#digests, head[2] and tonumber(head[2]) or -1, now}
