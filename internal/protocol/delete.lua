-- Delete one key. Invalidation's last resort while a slot migrates, when
-- scripts with several keys are refused: first the lease, then the value.
--
-- KEYS[1] lease or value
--
-- 1 always
redis.call('DEL', KEYS[1])
return 1
