-- The keys of a script for a Cluster may be of several hash slots, and are then none of its KEYS:
-- they are the first arguments, and the last argument says how many. Redis still checks each
-- command: it is an error for a key whose slot, or which itself, is on another server.

local KEYS, all = {}, ARGV
local ARGV = {}
for i = 1, all[#all] do KEYS[i] = all[i] end
for i = #KEYS + 1, #all - 1 do ARGV[i - #KEYS] = all[i] end
