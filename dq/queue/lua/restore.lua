-- restore: unfinished jobs from the journal, into a bucket that has lost them.
-- (nothing) -> delayed | ready | running (where a consumer has said that it has it in hand)
-- KEYS  the bucket
-- ARGV  now ms or '' · jobs, packed as they stand in JOBS, digest before each
-- gives how many were put back; one that is here, in whatever version, is left alone, and so is one
--       that a replayed record has finished
local now, restored = clock(ARGV[1]), 0
for i = 2, #ARGV, 2 do
  local digest, job = ARGV[i], cmsgpack.unpack(ARGV[i + 1])
  local floor = redis.call('HGET', FLOORS, digest)
  local is_finished = floor and job[STAMP] <= tonumber(floor)
  if not is_finished and redis.call('HSETNX', JOBS, digest, ARGV[i + 1]) == 1 then
    schedule(digest, job, now)
    restored = restored + 1
  end
end
announce()
return restored
