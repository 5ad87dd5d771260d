
-- refund removes the entries of a charge, from the member `id` on, as far as they are in the set.
local function refund(key, _, n, id)
  return each('ZREM', key, id, tonumber(ARGV[n]))
end
