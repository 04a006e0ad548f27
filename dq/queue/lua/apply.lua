-- apply: the records of one writer's log, in order, each exactly once.
-- KEYS  the bucket
-- ARGV  now ms or '' · epoch · writer · flags: r replay (sent before, or by an heir), f don't wait,
--       c sent before, but no replica has confirmed it · first sequence · records, packed, as they stand in the log
-- gives 'OK', applied sequence, one byte of outcome per record (dq/queue/records.py, Code)
--       'WAIT', applied sequence, outcomes: the next record waits for another writer's
--       'GAP', applied sequence: records before `first` are missing here
--       'EPOCH', epoch: this bucket was begun anew; '' when it was not begun at all
local FIELDS = 12    -- what scripts need of a record; the story of an attempt comes after them

local function without_offset(_, ...)
  return {...}
end

local HANDLERS = {[1] = push, [2] = cancel, [3] = move, [4] = settle}
local first, count = tonumber(ARGV[5]), #ARGV - 5
local last = first + count - 1

local head = redis.call('HMGET', META, 'epoch', 'h' .. writer, 'o' .. writer, 'replayed', 'state')
if head[1] ~= ARGV[2] then return {'EPOCH', head[1] or ''} end
local applied = tonumber(head[2] or '0')
if first > applied + 1 then return {'GAP', applied} end
restoring = head[5] == 'restoring'
recovering = replay or restoring or now - tonumber(head[4] or '0') < RECOVERING_MS

-- A call whose answer was cut is repeated: what it did is remembered, not done again.
local codes = {}
local told = head[3] or ''
for i = 1, math.min(count, applied - first + 1) do
  local at = #told - (applied - (first + i - 1))
  codes[i] = at > 0 and string.sub(told, at, at) or '\0'
end
if count > 0 and unconfirmed then
  -- WAITAOF waits for what its connection wrote last: let that come after all that was applied.
  go_on_when_full()
  redis.call('HSET', META, 'h' .. writer, applied)
end
if last <= applied then return {'OK', applied, table.concat(codes)} end

local fresh = {unpack(ARGV, 6 + #codes)}
if not read_heads(fresh) then go_on_when_full() end

if not replay then look() end
local outcomes, waits = {}, false
while #outcomes < #fresh and not waits do
  local at = #outcomes + 1
  local seq, length, code = first + #codes + at - 1, 0
  if not replay then length, code = apply_run(fresh, at, seq) end
  if length == 0 then
    local handle = HANDLERS[ops[at]]
    local r = handle and without_offset(first_fields(fresh[at], FIELDS))
    length, code = 1, r and handle(r, seq) or SKIPPED
  end
  waits = code == WAIT
  for i = at, at + (waits and 0 or length) - 1 do outcomes[i] = string.char(code) end
end
applied = first + #codes + #outcomes - 1
local answer = table.concat(outcomes)
redis.call('HSET', META, 'h' .. writer, applied, 'o' .. writer, answer)
if replay then redis.call('HSET', META, 'replayed', now) end
announce()
return {applied == last and 'OK' or 'WAIT', applied, table.concat(codes) .. answer}
