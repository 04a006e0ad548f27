-- job: how a job lies in JOBS and a lease in HOLDERS. Prepended to every script, before bucket.lua.
--
-- A job, big-endian; dq/queue/records.py has the same in Python:
--   1 byte   flags: 0-1 width of seq, 2-3 width of ahead (both an index into WIDTHS), 4 `told`,
--            5 `lived`; 6 and 7 are 0: where they are not, the job is of a layout unknown here
--   7 bytes  stamp    8 bytes  writer    then seq · ahead, signed: due ms less the ms of the stamp
--   topic, NUL, id, NUL (neither they nor the key can hold a NUL: dq/api/ids.py)
--   told     when one of them is not the usual: priority (1), timeout ms (3), key, NUL
--   lived    the same: retries (2), closed (1), changed (7)
--   body     to the end
-- A lease: token (16 bytes, of them 8 the consumer) · stamp and writer as in the job · topic.
-- What few jobs have takes no room in the others, and most scripts need no more than a part of a job.

-- the fields of an unpacked job, an array
local STAMP, WRITER, SEQ, DUE_AT, RETRIES, PRIORITY = 1, 2, 3, 4, 5, 6
local TOPIC, ID, BODY = 8, 9, 11     -- 7 is the timeout, 10 the business key: for consumers
local CLOSED, CHANGED = 12, 13       -- cancelled while it ran; stamp of the last move or retry

local WIDTHS = {[0] = 2, 3, 4, 6}
local TOLD, LIVED = 16, 32
local NORMAL = 1    -- the usual priority

local head_formats, place_formats = {}, {}

-- All up to the id.
local function head_format(flags)
  local widths = flags % 16
  local format = head_formats[widths]
  if not format then
    format = '>BI7c8i' .. WIDTHS[widths % 4] .. 'i' .. WIDTHS[math.floor(widths / 4)] .. 'ss'
    head_formats[widths] = format
  end
  return format
end

-- Stamp, ahead and topic alone.
local function place_format(flags)
  local widths = flags % 16
  local format = place_formats[widths]
  if not format then
    local passed = string.rep('x', 8 + WIDTHS[widths % 4])
    format = '>xI7' .. passed .. 'i' .. WIDTHS[math.floor(widths / 4)] .. 's'
    place_formats[widths] = format
  end
  return format
end

local function width_of(number)
  if number < 0 then number = -1 - number end
  return number < 2 ^ 15 and 0 or number < 2 ^ 23 and 1 or number < 2 ^ 31 and 2 or 3
end

local function flags_of(raw)
  local flags = string.byte(raw)
  if flags > 63 then error('a job was packed by another version of dq', 0) end
  return flags
end

local function pack_job(stamp, writer, seq, due, retries, priority, timeout, topic, id, key, body,
  closed, changed)
  local ahead = due - math.floor(stamp / 1000)
  local flags = width_of(seq) + 4 * width_of(ahead)
  local told, lived = '', ''
  if priority ~= NORMAL or timeout ~= 0 or key ~= '' then
    flags, told = flags + TOLD, struct.pack('>BI3s', priority, timeout, key)
  end
  if retries ~= 0 or closed ~= 0 or changed ~= 0 then
    flags, lived = flags + LIVED, struct.pack('>I2BI7', retries, closed, changed)
  end
  return struct.pack(head_format(flags), flags, stamp, writer, seq, ahead, topic, id)
    .. told .. lived .. body
end

local function unpack_job(raw)
  local flags = flags_of(raw)
  local _, stamp, writer, seq, ahead, topic, id, at = struct.unpack(head_format(flags), raw)
  local priority, timeout, key, retries, closed, changed = NORMAL, 0, '', 0, 0, 0
  if flags % LIVED >= TOLD then priority, timeout, key, at = struct.unpack('>BI3s', raw, at) end
  if flags >= LIVED then retries, closed, changed, at = struct.unpack('>I2BI7', raw, at) end
  return {stamp, writer, seq, math.floor(stamp / 1000) + ahead, retries, priority, timeout, topic,
    id, key, string.sub(raw, at), closed, changed}
end

-- Priority, topic and due ms of a packed job.
local function place_of(raw)
  local flags = flags_of(raw)
  if flags % LIVED >= TOLD then
    local job = unpack_job(raw)
    return job[PRIORITY], job[TOPIC], job[DUE_AT]
  end
  local stamp, ahead, topic = struct.unpack(place_format(flags), raw)
  return NORMAL, topic, math.floor(stamp / 1000) + ahead
end

-- Stamp and writer of a packed job, still packed.
local function version_in(raw)
  return flags_of(raw) and string.sub(raw, 2, 16)
end

local function pack_version(stamp, writer)
  return struct.pack('>I7c8', stamp, writer)
end

-- `version`: packed
local function pack_holder(token, version, topic)
  return token .. version .. topic
end

local function unpack_holder(raw)
  local token, stamp, writer, at = struct.unpack('>c16I7c8', raw)
  return {token = token, stamp = stamp, writer = writer, topic = string.sub(raw, at)}
end
