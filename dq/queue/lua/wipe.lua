-- wipe: a bucket that has fallen back further than the logs reach is given up.
-- (everything) -> (nothing); dq-redis-checker then begins it anew and restores it from the journal
-- KEYS  the bucket
-- ARGV  the epoch that is given up: another one is left alone
-- gives 1 when it was wiped
--
-- A log's old segments go only when the journal has them, so the journal knows what is lost here.
if redis.call('HGET', META, 'epoch') ~= ARGV[1] then return 0 end
for _, key in ipairs(KEYS) do redis.call('UNLINK', key) end
return 1
