-- Takes a turn of all limits at once. KEYS: one list of times for each limit, then rests.
-- ARGV: how many limits, then of each: events, per in µs. Returns 0, or in how many µs to ask again; then nothing was taken.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local limits = tonumber(ARGV[1])
local wait = 0
for i = limits + 1, #KEYS do
  wait = math.max(wait, redis.call('PTTL', KEYS[i]) * 1000)
end
for i = 1, limits do
  local per = tonumber(ARGV[2 * i + 1])
  local first = redis.call('LINDEX', KEYS[i], -tonumber(ARGV[2 * i]))
  if first then
    -- No longer than the window itself, should the clock have been set back.
    wait = math.max(wait, math.min(first + per - now, per))
  end
end
if wait > 0 then
  return wait
end
for i = 1, limits do
  redis.call('RPUSH', KEYS[i], string.format('%.0f', now))
  redis.call('LTRIM', KEYS[i], -tonumber(ARGV[2 * i]), -1)
  redis.call('PEXPIRE', KEYS[i], math.ceil(ARGV[2 * i + 1] / 1000))
end
return 0
