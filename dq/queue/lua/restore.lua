-- restore: unfinished jobs from the journal, into a bucket that has lost them.
-- (nothing) -> delayed | ready | running (where a consumer has said that it has it in hand)
-- KEYS  the bucket
-- ARGV  now ms or '' · jobs, packed as they stand in JOBS, digest before each
-- gives how many were put back; one that is here, in whatever version, is left alone, and so is one
--       that a replayed record has finished. One whose lease is still here, but not its holder, is
--       in some consumer's hand: it stands nowhere until the lease runs out (rescue)
local now, restored = clock(ARGV[1]), 0
for i = 2, #ARGV, 2 do
  local digest, job = ARGV[i], unpack_job(ARGV[i + 1])
  local floor = redis.call('HGET', FLOORS, digest)
  local is_finished = floor and job[STAMP] <= tonumber(floor)
  if not is_finished and redis.call('HSETNX', JOBS, digest, ARGV[i + 1]) == 1 then
    redis.call('ZREM', DUE, digest)    -- left over from before the loss
    local is_in_hand = redis.call('ZSCORE', LEASES, digest)
    if not is_in_hand or redis.call('HEXISTS', HOLDERS, digest) == 1 then
      schedule(digest, job, now)
    end
    restored = restored + 1
  end
end
announce()
return restored
