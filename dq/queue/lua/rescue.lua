-- rescue: leases that ran out, or whose consumer is known to be dead.
-- running -> ready; after `most` losses in a row, or cancelled meanwhile -> held by the caller, who
-- settles it
-- KEYS  the bucket
-- ARGV  now ms or '' · consumer (8 bytes) or '' for those that ran out · how many at the most ·
--       most · the caller (8 bytes) · number of its first token · its lease ms · the latest ms that
--       it can be, or ''
-- gives how many were rescued (-1 when it is later than it can be), now ms, then the jobs to be settled, packed, in the order of the
--       tokens
--
-- A consumer's leases are found by reading all holders: there are never more than the consumers'
-- slots together, and a death is rare.
local now, consumer, limit = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local most, caller, token, lease_ms = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
if has_jumped(now, ARGV[8]) then return {-1, now} end

local digests = {}
if consumer == '' then
  digests = redis.call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, limit)
else
  local all = redis.call('HGETALL', HOLDERS)
  for i = 1, #all, 2 do
    if string.sub(all[i + 1], 1, 8) == consumer and #digests < limit then
      digests[#digests + 1] = all[i]
    end
  end
end

local poisoned = {}
local function keep_poisoned(digest, job)
  redis.call('HSET', HOLDERS, digest, pack_holder(
    caller .. struct.pack('>I8', token), pack_version(job[STAMP], job[WRITER]), job[TOPIC]))
  redis.call('ZADD', LEASES, now + lease_ms, digest)
  count_in_flight(job[TOPIC], 1)
  poisoned[#poisoned + 1] = redis.call('HGET', JOBS, digest)
  token = token + 1
end

local function rescue(digest)
  local holder, job = holder_of(digest), load(digest)
  if holder then end_lease(digest, holder) else redis.call('ZREM', LEASES, digest) end
  if not job then return redis.call('HDEL', CRASHES, digest) end
  unschedule(digest, job)
  if not holds(holder, job) then
    schedule(digest, job, now)
  elseif job[CLOSED] == 1 or redis.call('HINCRBY', CRASHES, digest, 1) >= most then
    keep_poisoned(digest, job)
  else
    schedule(digest, job, now)
  end
end

for _, digest in ipairs(digests) do rescue(digest) end
announce()
return {#digests, now, unpack(poisoned)}
