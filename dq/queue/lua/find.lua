-- find: unfinished jobs and where they stand. Reads only.
-- KEYS  the bucket
-- ARGV  n, n digests, then pairs: writer, the highest sequence of its that was ever seen applied
-- gives two answers each: the job, packed, or nil · 'delayed', 'ready' or 'running'; then the
--       bucket's state, or 'behind': where it is not 'ready', a job that is not found may still come
local found = {}
local count = tonumber(ARGV[1])
for i = 1, count do
  local digest = ARGV[1 + i]
  local raw = redis.call('HGET', JOBS, digest)
  local state = 'ready'
  if raw then
    if holds(holder_of(digest), unpack_job(raw)) then
      state = 'running'
    elseif redis.call('ZSCORE', DUE, digest) then
      state = 'delayed'
    end
  end
  found[2 * i - 1], found[2 * i] = raw, state
end
local state = redis.call('HGET', META, 'state') or ''
for i = count + 2, #ARGV, 2 do
  local applied = tonumber(redis.call('HGET', META, 'h' .. ARGV[i]) or '0')
  if applied < tonumber(ARGV[i + 1]) then state = 'behind' end
end
found[2 * count + 1] = state
return found
