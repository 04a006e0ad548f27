-- What give_back and lease share: leases that end before their callback began.

-- Cancelled meanwhile: it stays with its holder, but its lease has run out (`rescue` ends it).
local function give_back(digest, holder, now)
  local job = load(digest)
  if job and job[CLOSED] == 1 and holds(holder, job) then
    return redis.call('ZADD', LEASES, now, digest)
  end
  end_lease(digest, holder)
  if not job then return end
  unschedule(digest, job)
  schedule(digest, job, now)
end

-- What a consumer was given after the last token that it knows of: the answer was lost on its way,
-- so nobody has it in hand.
local function give_back_unheard(consumer, last, now)
  local all = redis.call('HGETALL', HOLDERS)
  for i = 1, #all, 2 do
    local holder = unpack_holder(all[i + 1])
    local owner, number = struct.unpack('>c8I8', holder.token)
    if owner == consumer and number > last then give_back(all[i], holder, now) end
  end
end
