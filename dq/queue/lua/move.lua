-- move: another due time for this version.
-- delayed | ready -> delayed | ready
-- record   [op, stamp, digest, version's stamp, writer, seq, topic, id, due ms]
-- answers  MOVED · refused: BUSY (it is running), CHANGED (another version is here, or a later change
--          was made), ABSENT
local function move(r, seq)
  local digest = r[3]
  local job = load(digest)
  if not is_meant(job, r) then return missed(job, r, seq) end
  local holder = holder_of(digest)
  local is_held = holds(holder, job)
  -- When it is replayed it was accepted once: a lease that stands here ended before it.
  if is_held and not replay then return BUSY end
  if job[CHANGED] >= r[2] then return CHANGED_VERSION end
  if not is_held then unschedule(digest, job) end
  job[DUE_AT], job[CHANGED] = r[9], r[2]
  save(digest, job)
  if not is_held then schedule(digest, job, now) end
  return MOVED
end
