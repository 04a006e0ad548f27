-- runs: plain records that follow each other, done together: a call of Redis costs as much for
-- many as for one. Stands between the transitions and `apply`.
-- (nothing) -> delayed | ready        running -> done
--
-- Plain is a push of a job that is not here, and the end of an attempt that went well, by the holder
-- of its lease: what push.lua and settle.lua do with most. Whatever else is true of a record, one of
-- them has to see it: a replay, another version, a job that an earlier record of this call is about.
-- A run is of one kind, so that a full memory refuses it as it would refuse its first record.
local RUN_MOST = 500
local jobs_here, holders_here, seen = {}, {}, {}

local function look(records)
  local digests, has_settle = {}, false
  for i, r in ipairs(records) do
    digests[i] = r[3] or ''
    has_settle = has_settle or r[1] == 4
  end
  jobs_here = redis.call('HMGET', JOBS, unpack(digests))
  if has_settle then holders_here = redis.call('HMGET', HOLDERS, unpack(digests)) end
end

-- Whether a job is not here, or its attempt is the caller's; yes only once for a digest.
local function is_plain(r, i)
  local digest = r[3]
  if not digest or seen[digest] then return false end
  seen[digest] = true
  if r[1] == 1 then return not jobs_here[i] end
  if r[1] ~= 4 or r[10] ~= 0 or not jobs_here[i] or not holders_here[i] then return false end
  return version_in(jobs_here[i]) == pack_version(r[4], r[5])
    and string.sub(holders_here[i], 1, 16) == r[9]
end

local function push_run(run, seq)
  local saved, delayed, overdue, overdue_jobs, count = {}, {}, {}, {}, 0
  for i, r in ipairs(run) do
    local digest, due, job = r[3], r[4], pack_job(new_job(r, seq + i - 1))
    saved[2 * i - 1], saved[2 * i] = digest, job
    if due > now then
      see_due(due)
      delayed[count + 1], delayed[count + 2] = due, digest
      count = count + 2
    else
      overdue[#overdue + 1] = digest
      overdue_jobs[#overdue] = job
    end
  end
  redis.call('HSET', JOBS, unpack(saved))
  if count > 0 then redis.call('ZADD', DUE, unpack(delayed)) end
  if #overdue > 0 then make_ready(overdue, overdue_jobs) end
end

-- `finish` of changes.lua, for many.
local function finish_run(run, digests)
  local floors, risen, floored = redis.call('HMGET', FLOORS, unpack(digests)), {}, {}
  for i, r in ipairs(run) do
    if not floors[i] or r[4] > tonumber(floors[i]) then
      risen[#risen + 1] = r[3]
      risen[#risen + 1] = string.format('%.0f', r[4])
      floored[#floored + 1] = now + FLOOR_MS
      floored[#floored + 1] = r[3]
    end
  end
  if #risen == 0 then return end
  redis.call('HSET', FLOORS, unpack(risen))
  redis.call('ZADD', FLOORED, unpack(floored))
end

local function settle_run(run)
  local digests, counts = {}, {}
  for i, r in ipairs(run) do
    digests[i] = r[3]
    counts[r[7]] = (counts[r[7]] or 0) + 1
  end
  end_leases(digests, counts)
  redis.call('HDEL', CRASHES, unpack(digests))
  redis.call('HDEL', JOBS, unpack(digests))
  if recovering then finish_run(run, digests) end
end

-- The run of plain records that begins at `from`, done; answers how long it is and its outcome.
local function apply_run(records, from, seq)
  local run, op = {}, records[from][1]
  for i = from, math.min(#records, from + RUN_MOST - 1) do
    if records[i][1] ~= op or not is_plain(records[i], i) then break end
    run[#run + 1] = records[i]
  end
  if #run == 0 then return 0 end
  if op == 1 then push_run(run, seq) else settle_run(run) end
  return #run, op == 1 and CREATED or SETTLED
end
