-- found: begins a bucket that is not there: a fresh node, or one that was wiped.
-- KEYS  the bucket
-- ARGV  now ms or '' · new epoch · state ('ready', 'restoring') · hold ms: so long nothing is leased,
--       until the consumers have said what they have in hand (reassert)
-- gives the epoch, state
local now = clock(ARGV[1])
if redis.call('HSETNX', META, 'epoch', ARGV[2]) == 1 then
  redis.call('HSET', META, 'state', ARGV[3], 'hold', now + tonumber(ARGV[4]), 'replayed', now)
end
return redis.call('HMGET', META, 'epoch', 'state')
