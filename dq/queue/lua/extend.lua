-- extend: leases last longer, for callbacks whose timeout is longer than the usual lease.
-- running -> running
-- KEYS  the bucket
-- ARGV  triples: digest, token, the ms at which the lease is to run out
-- gives how many leases were still the caller's
local digests, ends = {}, {}
for i = 1, #ARGV, 3 do digests[#digests + 1] = ARGV[i] end
if #digests == 0 then return 0 end
local holders = redis.call('HMGET', HOLDERS, unpack(digests))
for i, digest in ipairs(digests) do
  if holders[i] and string.sub(holders[i], 1, 16) == ARGV[3 * i - 1] then
    ends[#ends + 1] = ARGV[3 * i]
    ends[#ends + 1] = digest
  end
end
if #ends == 0 then return 0 end
go_on_when_full()
redis.call('ZADD', LEASES, 'XX', unpack(ends))
return #ends / 2
