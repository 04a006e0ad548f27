-- give_back: leases whose callback was never begun.
-- running -> ready
-- KEYS  the bucket
-- ARGV  now ms or '' · pairs: digest, token
-- gives how many leases were still the caller's
local now, kept = clock(ARGV[1]), 0
for i = 2, #ARGV, 2 do
  local digest = ARGV[i]
  local holder, job = holder_of(digest), load(digest)
  if holder and holder[1] == ARGV[i + 1] then
    end_lease(digest, holder)
    if job then
      unschedule(digest, job)
      schedule(digest, job, now)
    end
    kept = kept + 1
  end
end
announce()
return kept
