-- Fill: cache the candidate only while the lease is this acquisition's.
--
-- KEYS[1] value   KEYS[2] lease   KEYS[3] stale copy
-- ARGV[1] lease as it was set, token:nonce
-- ARGV[2] candidate
-- ARGV[3] TTL in milliseconds, a whole number of at least 1
-- ARGV[4] shard channel to tell that the lease has ended, '' for none
--
-- {1, ttl}   accepted: cached, the stale copy deleted, the lease freed
-- {2, pttl}  present: the lease is not this acquisition's any more, but what is
--            cached is byte for byte the candidate
-- {0}        rejected: nothing was written
local ttl = tonumber(ARGV[3])
if not ttl or ttl < 1 or ttl ~= math.floor(ttl) then
  return redis.error_reply('ERR leasecache: TTL must be a whole number of milliseconds of at least 1')
end

if redis.call('GET', KEYS[2]) == ARGV[1] then
  -- First the write that can be refused (OOM), then what cannot fail: an error
  -- reply must not leave half of it done.
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  redis.pcall('DEL', KEYS[2], KEYS[3])
  if ARGV[4] ~= '' then
    redis.pcall('SPUBLISH', ARGV[4], 'fill')
  end
  return {1, ttl}
end

-- pcall: a value of another type is just not the candidate.
if redis.pcall('GET', KEYS[1]) == ARGV[2] then
  return {2, redis.call('PTTL', KEYS[1])}
end
return {0}
