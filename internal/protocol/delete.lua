-- Delete one key. Invalidation's last resort while a slot migrates, when
-- scripts with several keys are refused: first the lease, then the value.
--
-- KEYS[1] lease or value
-- ARGV[1] shard channel to tell that the lease has ended, '' for none
--
-- 1 always
redis.call('DEL', KEYS[1])
if ARGV[1] ~= '' then
  redis.pcall('SPUBLISH', ARGV[1], 'invalidate')
end
return 1
