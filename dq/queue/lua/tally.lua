-- tally: do the counts of this bucket add up? Reads only.
-- KEYS  the bucket
-- ARGV  none
-- gives 1, or 0 when a job stands nowhere, or something stands somewhere that is no job: a key was
--       deleted or thrown away. A bucket that is being begun or restored adds up by definition.
--
-- Each job is delayed, ready or held; of a job that is held a newer version may wait beside it.
if redis.call('HGET', META, 'state') ~= 'ready' then return 1 end
local jobs, held = redis.call('HLEN', JOBS), redis.call('HLEN', HOLDERS)
local waiting = redis.call('ZCARD', DUE) + redis.call('ZCARD', READY)
return (waiting <= jobs and jobs <= waiting + held) and 1 or 0
