-- settle: an attempt has ended.
-- running -> done | delayed (retry) | dead; closed by a cancel: running -> done | cancelled
-- record   [op, stamp, digest, version's stamp, writer, seq, topic, id, token,
--           verdict (0 done, 1 retry, 2 dead), due ms of the retry, retries before this attempt, …]
-- answers  SETTLED, CANCELLED · refused: STALE (the lease is somebody else's), CHANGED, ABSENT
--
-- Nothing is written on a lease that is not one's own. A lease that Redis itself has lost is still
-- one's own: no holder, never rescued, the same attempt. A replay needs no lease at all, and may
-- bring the end of a later attempt first: those before it count as settled then.

local function is_ours(digest, r, holder, job)
  if holder and holder.token == r[9] then return true end
  if replay then return job[RETRIES] <= r[12] end
  return job[RETRIES] == r[12] and not holder and redis.call('HEXISTS', CRASHES, digest) == 0
end

local function settle(r, seq)
  local digest = r[3]
  local job, holder = load(digest), holder_of(digest)
  if not is_meant(job, r) then
    if is_awaited(r, seq, job) then return WAIT end
    if holder and holder.token == r[9] then
      end_lease(digest, holder)
      if job then
        unschedule(digest, job)
        schedule(digest, job, now)    -- the newer version had to wait for this attempt
      elseif holder.stamp == r[4] and holder.writer == r[5] then
        redis.call('HDEL', CRASHES, digest)
        if r[10] ~= 1 then finish(r, true) end
        return SETTLED    -- the job was lost here, its lease was not; the journal brings it back
      end
    end
    return missed(job, r, seq)
  end
  if not is_ours(digest, r, holder, job) then return STALE end
  if holder then end_lease(digest, holder) else unschedule(digest, job) end
  redis.call('HDEL', CRASHES, digest)
  if r[10] == 1 and job[CLOSED] == 0 then
    job[RETRIES] = r[12] + 1
    -- Nothing changes a job while it runs, so its retry comes last, whatever the hosts' clocks say;
    -- only a replay, in any order, has to go by the stamps.
    if not replay or job[CHANGED] < r[2] then
      job[DUE_AT], job[CHANGED] = r[11], math.max(job[CHANGED], r[2])
    end
    save(digest, job)
    schedule(digest, job, now)
    return SETTLED
  end
  redis.call('HDEL', JOBS, digest)
  finish(r)
  return (r[10] ~= 0 and job[CLOSED] == 1) and CANCELLED or SETTLED
end
