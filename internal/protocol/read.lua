-- Read or lease: return the value, else take the lease if it is free, else say
-- how long it is still held.
--
-- KEYS[1] value   KEYS[2] lease   KEYS[3] stale copy
-- ARGV[1] token of this acquisition, 32 hexadecimal digits; '' to take no lease
-- ARGV[2] lease in milliseconds
-- ARGV[3] '1' to return the stale copy to a reader that would have to wait
-- ARGV[4] '1' to leave the value aside, and the mark of a failed load (refresh);
--         '2' to take the lease in place of a mark; '0' for neither
--
-- {1, value, pttl}   the value; pttl as PTTL answers it, in milliseconds
-- {2, nonce}         the lease is this acquisition's
-- {2, nonce, stale}  and others may have the stale copy meanwhile
-- {3, left, stale}   another holds the lease, for left milliseconds
-- {4, left}          the same, and there is no stale copy
-- {5, left, text}    a load failed a moment ago: what its error said, and for how
--                    long that is remembered; {3, left, stale} if there is a copy
-- {6, left}          a load was not stored a moment ago
-- {0}                no value, no lease, and none asked for
if ARGV[4] ~= '1' then
  local value = redis.call('GET', KEYS[1])
  if value then
    return {1, value, redis.call('PTTL', KEYS[1])}
  end
end

local stale = false
if ARGV[3] == '1' then
  stale = redis.pcall('GET', KEYS[3])
  if type(stale) == 'table' then
    stale = false -- of another type: nothing that could be served
  end
end

local held = redis.call('GET', KEYS[2])
if held and string.sub(held, 1, 1) == '!' then
  -- The mark of a load that ended without a fill, which no token looks like.
  if ARGV[1] == '' or ARGV[4] ~= '0' then
    held = false
  elseif string.sub(held, 1, 2) == '!n' then
    return {6, redis.call('PTTL', KEYS[2])}
  elseif not stale then
    return {5, redis.call('PTTL', KEYS[2]), string.sub(held, 3)}
  end
end
if ARGV[1] ~= '' then
  if not held then
    -- The server's nonce makes this lease different from one that a delayed
    -- copy of the same request sets after an invalidation.
    local time = redis.call('TIME')
    local nonce = time[1] .. string.format('%06d', tonumber(time[2]))
    redis.call('SET', KEYS[2], ARGV[1] .. ':' .. nonce, 'PX', ARGV[2])
    held = ARGV[1] .. ':' .. nonce
  end
  -- Also true when a client sends the request again after a lost reply.
  if string.sub(held, 1, #ARGV[1] + 1) == ARGV[1] .. ':' then
    local nonce = string.sub(held, #ARGV[1] + 2)
    if stale then
      return {2, nonce, stale}
    end
    return {2, nonce}
  end
end

if not held then
  return {0}
end
local left = redis.call('PTTL', KEYS[2])
if stale then
  return {3, left, stale}
end
return {4, left}
