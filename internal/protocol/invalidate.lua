-- Invalidate: delete the value and the lease together. With a stale window, the
-- value becomes the stale copy, which never outlives the value's own TTL.
--
-- KEYS[1] value   KEYS[2] lease   KEYS[3] stale copy
-- ARGV[1] stale window in milliseconds, '0' to keep no stale copy
-- ARGV[2] how a not-found record begins: it is never kept
-- ARGV[3] shard channel to tell that the lease has ended, '' for none
--
-- 1 always. Needs no memory, and takes a value of any type.

local window = tonumber(ARGV[1])
if window > 0
  and redis.call('TYPE', KEYS[1]).ok == 'string'
  and redis.call('GETRANGE', KEYS[1], 0, #ARGV[2] - 1) ~= ARGV[2] then
  local left = redis.call('PTTL', KEYS[1])
  if left < 0 or left > window then
    left = window
  end
  -- The first write. If the user may not DEL, nothing has changed yet; if he may,
  -- nothing below can fail but what runs by pcall.
  redis.call('DEL', KEYS[2])
  -- The deadline is set before the name changes, so there is no moment at which
  -- a stale copy lives longer.
  if redis.pcall('PEXPIRE', KEYS[1], left) == 1 then
    redis.pcall('RENAME', KEYS[1], KEYS[3])
  end
end
redis.call('DEL', KEYS[2], KEYS[1])
if ARGV[3] ~= '' then
  redis.pcall('SPUBLISH', ARGV[3], 'invalidate')
end
return 1
