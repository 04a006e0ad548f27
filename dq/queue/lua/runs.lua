-- runs: plain records that follow each other, done together: a call of Redis costs as much for
-- many as for one. Stands between the transitions and `apply`.
-- (nothing) -> delayed | ready        running -> done
--
-- Plain is a push of a job that is not here, and the end of an attempt that went well, by the holder
-- of its lease: what push.lua and settle.lua do with most. Whatever else is true of a record, one of
-- them has to see it: a replay, another version, a job that an earlier record of this call is about.
-- A run is of one kind, so that a full memory refuses it as it would refuse its first record.
-- A plain record never becomes a table: its fields go from one C function into the next.
local RUN_MOST = 500
local LONG = 0xdc    -- a record's first byte when it has more than 15 fields
local ops, digests, jobs_here, holders_here, seen = {}, {}, {}, {}, {}

-- Up to `count` of a record's fields, after a number that means nothing. Decoding a few fields is
-- cheap, decoding a long reply is not.
local function first_fields(record, count)
  return cmsgpack.unpack_limit(record, count, string.byte(record) == LONG and 3 or 1)
end

-- What the records are and whom they are about; answers whether there is a push among them.
local function read_heads(records)
  local has_push = false
  for i, record in ipairs(records) do
    local _, op, _, digest = first_fields(record, 3)
    ops[i], digests[i] = op, digest or ''
    has_push = has_push or op == 1
  end
  return has_push
end

local function look()
  local has_settle = false
  for i = 1, #ops do has_settle = has_settle or ops[i] == 4 end
  jobs_here = redis.call('HMGET', JOBS, unpack(digests))
  if has_settle then holders_here = redis.call('HMGET', HOLDERS, unpack(digests)) end
end

-- Whether this record is the first one about its job; yes only once.
local function is_first(i)
  local digest = digests[i]
  if digest == '' or seen[digest] then return false end
  seen[digest] = true
  return true
end

-- Each of the two answers how many records, from `from` on, it did.

local function push_run(records, from, seq)
  local saved, delayed, overdue, overdue_jobs, count, at = {}, {}, {}, {}, 0, from
  local most = math.min(#records, from + RUN_MOST - 1)
  while at <= most and ops[at] == 1 and is_first(at) and not jobs_here[at] do
    local _, _, stamp, digest, due, priority, timeout, topic, id, key, body
      = first_fields(records[at], 10)
    local job = pack_job(
      stamp, writer, seq + at - from, due, 0, priority, timeout, topic, id, key, body, 0, 0)
    saved[#saved + 1] = digest
    saved[#saved + 1] = job
    if due > now then
      see_due(due)
      delayed[count + 1], delayed[count + 2] = due, digest
      count = count + 2
    else
      overdue[#overdue + 1] = digest
      overdue_jobs[#overdue] = job
    end
    at = at + 1
  end
  if at > from then redis.call('HSET', JOBS, unpack(saved)) end
  if count > 0 then redis.call('ZADD', DUE, unpack(delayed)) end
  if #overdue > 0 then make_ready(overdue, overdue_jobs) end
  return at - from
end

-- `finish` of changes.lua, for many.
local function finish_run(done, stamps)
  local floors, risen, floored = redis.call('HMGET', FLOORS, unpack(done)), {}, {}
  for i, digest in ipairs(done) do
    if not floors[i] or stamps[i] > tonumber(floors[i]) then
      risen[#risen + 1] = digest
      risen[#risen + 1] = string.format('%.0f', stamps[i])
      floored[#floored + 1] = now + FLOOR_MS
      floored[#floored + 1] = digest
    end
  end
  if #risen == 0 then return end
  redis.call('HSET', FLOORS, unpack(risen))
  redis.call('ZADD', FLOORED, unpack(floored))
end

local function settle_run(records, from)
  local done, stamps, counts, at = {}, {}, {}, from
  local most = math.min(#records, from + RUN_MOST - 1)
  while at <= most and ops[at] == 4 and is_first(at) and jobs_here[at] and holders_here[at] do
    local _, _, _, digest, stamp, of_writer, _, topic, _, token, verdict
      = first_fields(records[at], 10)
    if verdict ~= 0 or version_in(jobs_here[at]) ~= pack_version(stamp, of_writer)
      or string.sub(holders_here[at], 1, 16) ~= token then break end
    at = at + 1
    done[at - from], stamps[at - from] = digest, stamp
    counts[topic] = (counts[topic] or 0) + 1
  end
  if at == from then return 0 end
  end_leases(done, counts)
  redis.call('HDEL', CRASHES, unpack(done))
  redis.call('HDEL', JOBS, unpack(done))
  if recovering then finish_run(done, stamps) end
  return at - from
end

-- The run of plain records that begins at `from`, done; answers how long it is and its outcome.
local function apply_run(records, from, seq)
  if ops[from] == 1 then return push_run(records, from, seq), CREATED end
  if ops[from] == 4 then return settle_run(records, from), SETTLED end
  seen[digests[from]] = true
  return 0
end
