-- give_back: leases whose callback was never begun.
-- running -> ready; cancelled meanwhile: running, but its lease has run out (`rescue` ends it)
-- KEYS  the bucket
-- ARGV  now ms or '' · pairs: digest, token
-- gives how many leases were still the caller's
local now, kept = clock(ARGV[1]), 0
for i = 2, #ARGV, 2 do
  local digest = ARGV[i]
  local holder = holder_of(digest)
  if holder and holder.token == ARGV[i + 1] then
    give_back(digest, holder, now)
    kept = kept + 1
  end
end
announce()
return kept
