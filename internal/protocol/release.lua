-- Release: free the lease if it is this acquisition's. The mark of a load that
-- ended without a fill takes its place, so that those who waited need not repeat
-- it one after another.
--
-- KEYS[1] lease
-- ARGV[1] lease as it was set, token:nonce; or token: when the reply that held
--         the nonce was lost, and the acquirer has given up
-- ARGV[2] shard channel to tell that the lease has ended, '' for none
-- ARGV[3] mark: '!f' and what the load's error said, '!n' if there was nothing to
--         store, '' for none
-- ARGV[4] how long the mark lives, in milliseconds
--
-- 1 freed, 0 it was not this acquisition's
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #ARGV[1]) == ARGV[1] then
  -- Without memory for a mark (OOM) the lease is freed all the same.
  if ARGV[3] == '' or not redis.pcall('SET', KEYS[1], ARGV[3], 'PX', ARGV[4]).ok then
    redis.call('DEL', KEYS[1])
  end
  if ARGV[2] ~= '' then
    redis.pcall('SPUBLISH', ARGV[2], 'release')
  end
  return 1
end
return 0
