-- limit: the topics that are held (off line, paused) or have a concurrency or a rate.
-- KEYS  the bucket
-- ARGV  revision of the topics that say so, a number that grows; an older one changes nothing ·
--       pairs: topic, limits packed as [held (0, 1), concurrency or 0, rate a second or 0]
-- gives 1 when the list was taken
if tonumber(redis.call('HGET', META, 'limited') or '0') > tonumber(ARGV[1]) then return 0 end
local topics = redis.call('HKEYS', LIMITS)
redis.call('DEL', LIMITS)
redis.call('HSET', META, 'limited', ARGV[1])
for i = 2, #ARGV, 2 do redis.call('HSET', LIMITS, ARGV[i], ARGV[i + 1]) end
for _, topic in ipairs(topics) do requeue_topic(topic) end
announce()
return 1
