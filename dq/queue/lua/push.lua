-- push: a new job, or a new version of an unfinished one.
-- (nothing) -> delayed | ready        delayed | ready | running -> the same of the new version
-- record   [op, stamp, digest, due ms, priority, timeout ms, topic, id, key, body,
--           on duplicate (0 replace, 1 keep, 2 reject), absolute (0, 1)]
-- answers  CREATED, REPLACED · refused: KEPT, REJECTED, COLLIDED (another job has this digest),
--          BEHIND (this writer's clock is behind the version that is here) · SWALLOWED (replay of
--          a version that is finished or replaced already)
local function push(r, seq)
  local stamp, digest = r[2], r[3]
  local old = load(digest)
  if old then
    if old[TOPIC] ~= r[7] or old[ID] ~= r[8] then return COLLIDED end
    if old[STAMP] == stamp and old[WRITER] == writer then return CREATED end
  end
  if replay then
    if is_below_floor(digest, stamp) then
      if old and is_below_floor(digest, old[STAMP]) then
        unschedule(digest, old)
        redis.call('HDEL', JOBS, digest)
        redis.call('HDEL', CRASHES, digest)
      end
      return SWALLOWED
    end
    if old and is_newer(old[STAMP], old[WRITER], stamp, writer) then return SWALLOWED end
  elseif old then
    if old[CLOSED] == 0 then    -- one that was cancelled while it runs is in nobody's way
      if r[11] == 2 then return REJECTED end
      if r[11] == 1 then return KEPT end
      if r[12] == 1 and old[DUE_AT] == r[4] and old[BODY] == r[10] then return KEPT end
    end
    if stamp <= old[STAMP] then return BEHIND end
  end
  if old then
    unschedule(digest, old)
    redis.call('HDEL', CRASHES, digest)    -- the new version has killed nobody yet
  end
  local job = {stamp, writer, seq, r[4], 0, r[5], r[6], r[7], r[8], r[9], r[10], 0, 0}
  save(digest, job)
  schedule(digest, job, now)
  return old and REPLACED or CREATED
end
