-- The bucket: what every script knows of it. Prepended to each of them when it is loaded, after
-- job.lua.
--
-- A job is unfinished as long as it is in JOBS. Where it stands follows from one membership:
--   delayed  its digest is in DUE              ready  it is in READY
--   running  HOLDERS has it, with this version  (a newer version of a job whose attempt is still
--            under way stands nowhere until that attempt has ended: `schedule` is called again)
-- KEYS come in the order of dq/queue/keys.py. Bodies are opaque bytes; numbers go through cmsgpack
-- and doubles, never through cjson. Check first, write last, remove before you add: then a script
-- under a full memory is refused whole or runs to its end.

local META, JOBS, DUE, READY = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local TURNS = {[0] = KEYS[5], [1] = KEYS[6], [2] = KEYS[7]}
local LEASES, HOLDERS, LIMITS, GAUGES = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local CRASHES, FLOORS, FLOORED, WAKE, WORK = KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]

local earliest, first_before         -- earliest due time set here, and what was first until then
local has_ready                      -- these are what `announce` tells the sleepers of at the end

-- The deciding clock: the node's own, unless a test hands in another. Milliseconds.
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- Whether a clock says more than its caller can believe ('' : anything).
local function has_jumped(now, latest)
  return latest ~= '' and now > tonumber(latest)
end

-- Redis with a full memory refuses a script whose first write adds something. What only moves jobs,
-- or what must not be lost, begins with a removal, of nothing.
local function go_on_when_full()
  redis.call('HDEL', META, '')
end

local function load(digest)
  local raw = redis.call('HGET', JOBS, digest)
  return raw and unpack_job(raw)
end

local function save(digest, job)
  redis.call('HSET', JOBS, digest, pack_job(unpack(job)))
end

-- token, stamp, writer and topic of whoever has the job in hand
local function holder_of(digest)
  local raw = redis.call('HGET', HOLDERS, digest)
  return raw and unpack_holder(raw)
end

-- Whether the attempt that is under way is of this version.
local function holds(holder, job)
  return holder and holder.stamp == job[STAMP] and holder.writer == job[WRITER]
end

local function is_newer(stamp, writer, other_stamp, other_writer)
  if stamp ~= other_stamp then return stamp > other_stamp end
  return writer > other_writer
end

-- READY sorts by text: first the priority, then the topic, then the due time.
local function ready_text(digest, priority, topic, due)
  return struct.pack('>BsI8c0', 48 + priority, topic, due, digest)    -- 48 is the digit 0
end

local function ready_member(digest, job)
  return ready_text(digest, job[PRIORITY], job[TOPIC], job[DUE_AT])
end

local function ready_of(priority, topic, limit)
  local from = priority .. topic
  return redis.call('ZRANGEBYLEX', READY, '[' .. from .. '\0', '(' .. from .. '\1',
    'LIMIT', 0, limit)
end

local turn
local queued = {[0] = {}, [1] = {}, [2] = {}}    -- no script takes a topic out that it has queued
-- The topic takes its place behind those that wait already.
local function queue_topic(priority, topic)
  has_ready = true
  if queued[priority][topic] then return end
  queued[priority][topic] = true
  turn = turn or redis.call('HGET', META, 'turn') or '0'
  redis.call('ZADD', TURNS[priority], 'NX', turn, topic)
end

local function first_due()
  local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
  return tonumber(head[2])
end

-- Is called before something is set to `due`.
local function see_due(due)
  if not earliest then first_before = first_due() end
  if not earliest or due < earliest then earliest = due end
end

-- Delayed until its time, else ready; neither while an attempt of an older version is under way.
local function schedule(digest, job, now)
  local due = job[DUE_AT]
  if due > now then
    see_due(due)
    redis.call('ZADD', DUE, due, digest)
  elseif redis.call('HEXISTS', HOLDERS, digest) == 0 then
    redis.call('ZADD', READY, 0, ready_member(digest, job))
    queue_topic(job[PRIORITY], job[TOPIC])
  end
end

-- Jobs, packed, that stand nowhere and are due; what is held, or no job any more, stays as it is.
local function make_ready(digests, jobs)
  local holders, ready, count = redis.call('HMGET', HOLDERS, unpack(digests)), {}, 0
  for i, digest in ipairs(digests) do
    if jobs[i] and not holders[i] then
      local priority, topic, due = place_of(jobs[i])
      ready[count + 1], ready[count + 2] = 0, ready_text(digest, priority, topic, due)
      count = count + 2
      queue_topic(priority, topic)
    end
  end
  if count > 0 then redis.call('ZADD', READY, unpack(ready)) end
end

local function unschedule(digest, job)
  if redis.call('ZREM', DUE, digest) == 0 then
    redis.call('ZREM', READY, ready_member(digest, job))
  end
end

local function count_in_flight(topic, change)
  if redis.call('HINCRBY', GAUGES, 'n' .. topic, change) <= 0 then
    redis.call('HDEL', GAUGES, 'n' .. topic)
  end
end

-- A topic that was full, or held, has its turn again.
local function requeue_topic(topic)
  for priority = 0, 2 do
    if #ready_of(priority, topic, 1) > 0 then queue_topic(priority, topic) end
  end
end

-- `counts`: how many of them each topic has
local function end_leases(digests, counts)
  redis.call('ZREM', LEASES, unpack(digests))
  redis.call('HDEL', HOLDERS, unpack(digests))
  for topic, count in pairs(counts) do
    count_in_flight(topic, -count)
    if redis.call('HEXISTS', LIMITS, topic) == 1 then requeue_topic(topic) end
  end
end

local function end_lease(digest, holder)
  end_leases({digest}, {[holder.topic] = 1})
end

-- Wakes whoever sleeps too long now: one token is enough, a sleeper that finds more than it can
-- take leaves another. A list keeps the token until somebody comes; a message would be lost.
local function announce()
  if has_ready and redis.call('LLEN', WORK) == 0 then redis.call('RPUSH', WORK, '1') end
  if not earliest or (first_before and first_before <= earliest) then return end
  if redis.call('LLEN', WAKE) == 0 then redis.call('RPUSH', WAKE, '1') end
end
