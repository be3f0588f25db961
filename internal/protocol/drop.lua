-- Drop: delete a value that this reader cannot decode, unless it changed
-- meanwhile or one was dropped for this key a moment ago. Two versions of a
-- service that cannot read each other's values would otherwise drop them in
-- turn for ever.
--
-- KEYS[1] value   KEYS[2] mark of the last drop
-- ARGV[1] value as it was read
-- ARGV[2] how long the mark lives, in milliseconds
--
-- 1 dropped, 0 it is another value by now, 2 not again so soon
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[2]) then
  return 2
end
redis.pcall('DEL', KEYS[1])
return 1
