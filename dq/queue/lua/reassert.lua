-- reassert: what a consumer has in hand, said again after this bucket has lost something.
-- ready | delayed | (nothing yet) -> running
-- KEYS  the bucket
-- ARGV  consumer (8 bytes) · its last token number here · per lease: digest, token, version's stamp,
--       writer, topic, the ms at which the lease is to run out
-- gives how many leases stand now
--
-- A job that is still to be restored gets its holder first: `schedule` then leaves it alone. A lease
-- that another consumer was given meanwhile stays that one's.
local consumer, kept = ARGV[1], 0
go_on_when_full()
-- What it was given and never heard of stays known here: `lease` takes it back.
local given = tonumber(redis.call('HGET', META, 'l' .. consumer) or '0')
redis.call('HSET', META, 'l' .. consumer, math.max(given, tonumber(ARGV[2])))
for i = 3, #ARGV, 6 do
  local digest, stamp, writer = ARGV[i], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local job, holder = load(digest), holder_of(digest)
  local is_same = not job or (job[STAMP] == stamp and job[WRITER] == writer)
  if is_same and not holder then
    if job then unschedule(digest, job) end
    redis.call('HSET', HOLDERS, digest,
      pack_holder(ARGV[i + 1], pack_version(stamp, writer), ARGV[i + 4]))
    redis.call('ZADD', LEASES, ARGV[i + 5], digest)
    count_in_flight(ARGV[i + 4], 1)
    kept = kept + 1
  elseif holder and holder.token == ARGV[i + 1] then
    kept = kept + 1
  end
end
return kept
