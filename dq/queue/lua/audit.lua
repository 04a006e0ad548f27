-- audit: do these unfinished jobs, known from the journal, stand where they should?
-- (nowhere) -> delayed | ready        running, its lease's end forgotten -> running, with an end
-- KEYS  the bucket
-- ARGV  now ms or '' · 1: what is overdue is scheduled too, 0: it is left alone · lease ms for one
--       whose end was forgotten · digests (<= 500)
-- gives how many stood nowhere and are scheduled again, how many of these were left alone, then the
--       places (from 1) of the digests that this bucket lacks altogether: `restore` brings them back
--
-- A lease whose holder was lost keeps its job from being handed out; `rescue` brings it back.
local now, takes_overdue, lease_ms = clock(ARGV[1]), ARGV[2] == '1', tonumber(ARGV[3])
local mended, left, missing = 0, 0, {}

local function mend(digest)
  if redis.call('HEXISTS', HOLDERS, digest) == 1 then
    redis.call('ZADD', LEASES, now + lease_ms, digest)
    mended = mended + 1
    return
  end
  local job = load(digest)
  if redis.call('ZSCORE', READY, ready_member(digest, job)) then
    queue_topic(job[PRIORITY], job[TOPIC])    -- its topic may have lost its turn
  elseif job[DUE_AT] <= now and not takes_overdue then
    left = left + 1
  else
    schedule(digest, job, now)
    mended = mended + 1
  end
end

go_on_when_full()
for i = 4, #ARGV do
  local digest = ARGV[i]
  if redis.call('HEXISTS', JOBS, digest) == 0 then
    missing[#missing + 1] = i - 3
  elseif not redis.call('ZSCORE', DUE, digest) and not redis.call('ZSCORE', LEASES, digest) then
    mend(digest)
  end
end
announce()
return {mended, left, unpack(missing)}
