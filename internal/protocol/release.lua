-- Release: free the lease if it is this acquisition's.
--
-- KEYS[1] lease
-- ARGV[1] lease as it was set, token:nonce; or token: when the reply that held
--         the nonce was lost, and the acquirer has given up
-- ARGV[2] shard channel to tell that the lease has ended, '' for none
--
-- 1 freed, 0 it was not this acquisition's
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #ARGV[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  if ARGV[2] ~= '' then
    redis.pcall('SPUBLISH', ARGV[2], 'release')
  end
  return 1
end
return 0
