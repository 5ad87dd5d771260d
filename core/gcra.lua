-- gcra: KEYS[i] is a string, 'G1 tat f L'; see tat.lua.
local gcra = tat('G1')
