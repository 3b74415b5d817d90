local number, seq, digest = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local there = redis.call('HMGET', KEYS[1], 'number', 'seq', 'digest')
local n, s = tonumber(there[1] or '') or 0, tonumber(there[2] or '') or 0
if n > number then return -1 end
if n == number then
  if there[3] ~= digest then return -2 end
  if s > seq then return -1 end
  if s == seq then return 0 end
end
redis.call('HSET', KEYS[1], 'number', ARGV[1], 'seq', ARGV[2], 'digest', digest,
  'manifest', ARGV[4], 'signature', ARGV[5], 'records', ARGV[6], 'records_signature', ARGV[7])
return 1
