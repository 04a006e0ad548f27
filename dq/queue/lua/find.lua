-- find: unfinished jobs and where they stand. Reads only.
-- KEYS  the bucket
-- ARGV  digests
-- gives two answers each: the job, packed, or nil · 'delayed', 'ready' or 'running'; then the
--       bucket's state: where it is not 'ready', a job that is not found may still come
local found = {}
for i, digest in ipairs(ARGV) do
  local raw = redis.call('HGET', JOBS, digest)
  local state = 'ready'
  if raw then
    local job, holder = cmsgpack.unpack(raw), holder_of(digest)
    if holder and holder[3] == job[STAMP] and holder[4] == job[WRITER] then
      state = 'running'
    elseif redis.call('ZSCORE', DUE, digest) then
      state = 'delayed'
    end
  end
  found[2 * i - 1], found[2 * i] = raw, state
end
found[2 * #ARGV + 1] = redis.call('HGET', META, 'state') or ''
return found
