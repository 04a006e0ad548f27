-- What push, cancel, move and settle share; stands between bucket.lua and them in `apply`.
--
-- After a loss the logs of several writers come back side by side, in any order.
--   A record whose version is still to come waits for it (WAIT): the writer of the version has
--   records that are not applied here. `f` in the flags: it waited long enough, the log is gone.
--   A retry or a move also waits while the job is still to come from the journal (`restoring`).
--   A version may come back that a newer, finished one had replaced. A finish therefore leaves a
--   floor: replayed versions up to its stamp are swallowed. Floors age away; without a loss there
--   are none.
local SKIPPED, CREATED, REPLACED, CANCELLED, RUNNING, MOVED, SETTLED = 0, 1, 2, 3, 4, 5, 6
local KEPT, REJECTED, SWALLOWED, COLLIDED, CHANGED_VERSION = 51, 52, 53, 54, 55
local ABSENT, STALE, BUSY, BEHIND = 56, 57, 58, 59
local WAIT = -1
local RECOVERING_MS, FLOOR_MS = 60000, 600000

local now, writer = clock(ARGV[1]), ARGV[3]
local replay, is_forced = string.find(ARGV[4], 'r') ~= nil, string.find(ARGV[4], 'f') ~= nil
local unconfirmed = string.find(ARGV[4], 'c') ~= nil
local recovering, restoring = replay, false

local function is_below_floor(digest, stamp)
  local floor = redis.call('HGET', FLOORS, digest)
  return floor and stamp <= tonumber(floor)
end

-- This record ends the version that it names; answers whether that had to be written down.
local function finish(r, is_lost)
  local digest, stamp = r[3], r[4]
  if not (recovering or is_lost) or is_below_floor(digest, stamp) then return false end
  redis.call('HSET', FLOORS, digest, string.format('%.0f', stamp))
  redis.call('ZADD', FLOORED, now + FLOOR_MS, digest)
  return true
end

-- Is the job that stands here the version that the record means?
local function is_meant(job, r)
  return job and job[STAMP] == r[4] and job[WRITER] == r[5]
end

local function is_awaited(r, seq, job)
  local is_change = r[1] == 3 or r[1] == 4 and r[10] == 1
  if restoring and not job and is_change then return true end
  if not recovering or is_forced then return false end
  if r[5] == writer then return r[6] > seq end
  return tonumber(redis.call('HGET', META, 'h' .. r[5]) or '0') < r[6]
end

-- Another version is here, or none: there is nothing to do, or nothing yet.
local function missed(job, r, seq)
  if is_awaited(r, seq, job) then return WAIT end
  if (r[1] == 2 or r[1] == 4 and r[10] ~= 1) and finish(r) and not job then
    return r[1] == 2 and CANCELLED or SETTLED    -- it counts: the journal must have it too
  end
  return job and CHANGED_VERSION or ABSENT
end
