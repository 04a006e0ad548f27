-- lease: ready jobs for one consumer.
-- ready -> running; running -> ready for what it was given by a call whose answer it never got
-- KEYS  the bucket
-- ARGV  now ms or '' · epoch · consumer (8 bytes) · number of the first token · how many at the
--       most (<= 500) · lease ms · the last token that this consumer was given here · n, n topics
--       to pass over · then pairs: writer, the highest sequence of its that was ever seen applied
-- gives 'OK', now ms, ms until a topic's rate allows more or -1, then jobs, packed, in the order
--       of their tokens (consumer .. 64-bit number)
--       'BEHIND': this bucket has lost records or leases; nothing is handed out until they are back,
--       or what is finished, or in hand, would be called again
--       'HOLD', ms: the same a little longer, for consumers to say what they have in hand
--       'EPOCH', epoch or ''
--
-- Priorities share 5:3:2 (a share that is not wanted goes to the others); topics of a priority take
-- turns, so one topic cannot hold the line; one that is held or full leaves the line until
-- end_lease or limit brings it back.
local CYCLE = {0, 1, 0, 2, 0, 1, 0, 1, 0, 2}
local SMOOTH_MS = 20    -- a fast rate is let through in bursts of so much time
local HOLD_MS = 1500    -- consumers ask once a second, and at once when they are told to hold
local LOOK, MOST_LOOKS = 64, 8    -- topics of a line that are looked at together, and how often
local now, consumer = clock(ARGV[1]), ARGV[3]
local token, want, lease_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local passed_over, skips = {}, tonumber(ARGV[8])
for i = 9, 8 + skips do passed_over[ARGV[i]] = true end

local head = redis.call('HMGET', META, 'epoch', 'hold', 'cycle', 'l' .. consumer)
if head[1] ~= ARGV[2] then return {'EPOCH', head[1] or ''} end
go_on_when_full()
local hold_ms = tonumber(head[2] or '0') - now
local given, heard = tonumber(head[4] or '0'), tonumber(ARGV[7])
local is_behind = given < heard
for i = 9 + skips, #ARGV, 2 do
  local applied = tonumber(redis.call('HGET', META, 'h' .. ARGV[i]) or '0')
  is_behind = is_behind or applied < tonumber(ARGV[i + 1])
end
if is_behind then
  if hold_ms <= 0 then redis.call('HSET', META, 'hold', now + HOLD_MS) end
  return {'BEHIND'}
end
if hold_ms > 0 then return {'HOLD', hold_ms} end
if token <= given then return {'OK', now, -1} end    -- a call that was overtaken: nobody waits for it
if given > heard then give_back_unheard(consumer, heard, now) end

local jobs, wait_ms = {}, -1
local has_limits = redis.call('EXISTS', LIMITS) == 1

-- How many callbacks of the topic may start now; second answer: it must leave the line.
local function room_of(topic)
  local raw = has_limits and redis.call('HGET', LIMITS, topic)
  if not raw then return want, false end
  local held, concurrency, rate = unpack(cmsgpack.unpack(raw))
  if held == 1 then return 0, true end
  local room = want
  if concurrency > 0 then
    room = concurrency - tonumber(redis.call('HGET', GAUGES, 'n' .. topic) or '0')
    if room <= 0 then return 0, true end
  end
  if rate > 0 then
    local interval = 1000 / rate
    local ahead = math.max(tonumber(redis.call('HGET', GAUGES, 't' .. topic) or '0') - now, 0)
    local slack = math.max(SMOOTH_MS - interval, 0) - ahead
    if slack < 0 then
      if wait_ms < 0 or -slack < wait_ms then wait_ms = math.ceil(-slack) end
      return 0, false
    end
    room = math.min(room, math.floor(slack / interval) + 1)
  end
  return room, false
end

local function spend_rate(topic, count)
  local raw = has_limits and redis.call('HGET', LIMITS, topic)
  if not raw then return end
  local rate = cmsgpack.unpack(raw)[3]
  if rate <= 0 then return end
  local next_start = math.max(tonumber(redis.call('HGET', GAUGES, 't' .. topic) or '0'), now)
  redis.call('HSET', GAUGES, 't' .. topic, string.format('%.3f', next_start + count * 1000 / rate))
end

local function hold(digests, raws, topic)
  local holders, leases = {}, {}
  for i, raw in ipairs(raws) do
    if raw then
      holders[#holders + 1] = digests[i]
      holders[#holders + 1] = pack_holder(
        consumer .. struct.pack('>I8', token), version_in(raw), topic)
      leases[#leases + 1] = now + lease_ms
      leases[#leases + 1] = digests[i]
      jobs[#jobs + 1] = raw
      token = token + 1
    end
  end
  if #holders == 0 then return end
  redis.call('HSET', HOLDERS, unpack(holders))
  redis.call('ZADD', LEASES, unpack(leases))
end

-- Takes up to `count` jobs of a topic; answers whether it has none left.
local function take(priority, topic, count)
  local members = ready_of(priority, topic, count)
  if #members == 0 then return true end
  redis.call('ZREM', READY, unpack(members))
  local digests = {}
  for i, member in ipairs(members) do digests[i] = string.sub(member, -8) end
  local before = #jobs
  hold(digests, redis.call('HMGET', JOBS, unpack(digests)), topic)
  if #jobs > before then
    count_in_flight(topic, #jobs - before)
    spend_rate(topic, #jobs - before)
  end
  return #members < count
end

local is_long    -- there may be topics that were not looked at
local function serve(priority, quota)
  local topics = redis.call('ZRANGE', TURNS[priority], 0, LOOK - 1)
  is_long = is_long or #topics == LOOK
  local chunk, before = math.ceil(quota / math.max(#topics, 1)), #jobs
  for _, topic in ipairs(topics) do
    local left = quota - (#jobs - before)
    if left <= 0 then break end
    local leaves, room = false, 0
    if not passed_over[topic] then room, leaves = room_of(topic) end
    if room > 0 then leaves = take(priority, topic, math.min(chunk, left, room)) end
    if leaves then
      redis.call('ZREM', TURNS[priority], topic)
    else
      redis.call('ZADD', TURNS[priority], redis.call('HINCRBY', META, 'turn', 1), topic)
    end
  end
  return #jobs - before
end

local cycle, shares = tonumber(head[3] or '0'), {[0] = 0, [1] = 0, [2] = 0}
for i = 0, want - 1 do
  local priority = CYCLE[(cycle + i) % 10 + 1]
  shares[priority] = shares[priority] + 1
end
for priority = 0, 2 do
  if shares[priority] > 0 then serve(priority, shares[priority]) end
end
-- What is left goes to whoever has work; many topics in a row may be passed over or have to wait.
local idle_looks = 0
repeat
  local before = #jobs
  is_long = false
  for priority = 0, 2 do
    if #jobs < want then serve(priority, want - #jobs) end
  end
  idle_looks = #jobs > before and 0 or idle_looks + 1
until #jobs >= want or (idle_looks > 0 and not is_long) or idle_looks >= MOST_LOOKS

if #jobs > 0 then
  redis.call('HSET', META, 'cycle', (cycle + #jobs) % 10, 'l' .. consumer, token - 1)
  for priority = 0, 2 do
    if #jobs == want and redis.call('EXISTS', TURNS[priority]) == 1 then has_ready = true end
  end
  announce()
end
return {'OK', now, wait_ms, unpack(jobs)}
