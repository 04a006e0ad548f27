-- extend: leases last longer, for callbacks whose timeout is longer than the usual lease.
-- running -> running
-- KEYS  the bucket
-- ARGV  triples: digest, token, the ms at which the lease is to run out
-- gives how many leases were still the caller's
local kept = 0
go_on_when_full()
for i = 1, #ARGV, 3 do
  local holder = holder_of(ARGV[i])
  if holder and holder[1] == ARGV[i + 1] then
    redis.call('ZADD', LEASES, 'XX', ARGV[i + 2], ARGV[i])
    kept = kept + 1
  end
end
return kept
