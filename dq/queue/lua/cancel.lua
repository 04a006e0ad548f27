-- cancel: no further callback of this version.
-- delayed | ready -> cancelled        running -> running, but closed: a failure ends it
-- record   [op, stamp, digest, version's stamp, writer, seq, topic, id]
-- answers  CANCELLED, RUNNING · refused: CHANGED (another version is here), ABSENT
local function cancel(r, seq)
  local digest = r[3]
  local job = load(digest)
  if not is_meant(job, r) then return missed(job, r, seq) end
  local holder = holder_of(digest)
  if holds(holder, job) then
    job[CLOSED] = 1
    save(digest, job)
    return RUNNING
  end
  unschedule(digest, job)
  redis.call('HDEL', JOBS, digest)
  redis.call('HDEL', CRASHES, digest)
  finish(r)
  return CANCELLED
end
