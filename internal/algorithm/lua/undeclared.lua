-- In a Cluster, the keys of a script for several calls may be in several hash slots. They cannot be its
-- KEYS then. Instead they are its first arguments, and the last argument is the number of keys. This file
-- makes KEYS and ARGV of them. Redis still checks each command of the script: if the hash slot of its key, or
-- the key itself, is on another server, the command fails.

local KEYS, all = {}, ARGV
local ARGV = {}
for i = 1, all[#all] do KEYS[i] = all[i] end
for i = #KEYS + 1, #all - 1 do ARGV[i - #KEYS] = all[i] end
