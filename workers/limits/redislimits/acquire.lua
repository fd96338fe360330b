-- Takes a place. KEYS: ends, tokens. ARGV: holder, most, ttl in µs.
-- Returns the token, or false when all places are held.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
for _, ended in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  redis.call('ZREM', KEYS[1], ended)
  redis.call('HDEL', KEYS[2], ended)
end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return false
end
-- The clock makes tokens rise even after everything of the key is forgotten; the field '' holds the
-- last one for two in the same microsecond and for a clock that was set back.
local token = math.max(now, (redis.call('HGET', KEYS[2], '') or 0) + 1)
token = string.format('%.0f', token)
redis.call('HSET', KEYS[2], ARGV[1], token, '', token)
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
-- Both live as long as the last place.
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
local ms = math.ceil(last / 1000)
redis.call('PEXPIREAT', KEYS[1], ms)
redis.call('PEXPIREAT', KEYS[2], ms)
return token
