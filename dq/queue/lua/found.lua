-- found: begins a bucket that is not there: a fresh node, or one that was wiped.
-- KEYS  the bucket
-- ARGV  new epoch · state ('ready', 'restoring')
-- gives the epoch, state
if redis.call('HSETNX', META, 'epoch', ARGV[1]) == 1 then
  redis.call('HSET', META, 'state', ARGV[2])
end
return redis.call('HMGET', META, 'epoch', 'state')
