-- Lets a place last from now on. KEYS: ends, tokens. ARGV: holder, token, ttl in µs.
-- Returns 1, or 0 when the lease is lost.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= now or redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
local ms = math.ceil(last / 1000)
redis.call('PEXPIREAT', KEYS[1], ms)
redis.call('PEXPIREAT', KEYS[2], ms)
return 1
