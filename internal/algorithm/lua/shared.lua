-- spent is what the decisions so far took beyond what each takes, in commands of about a microsecond. Of
-- several decisions those after the `most` that may be spent are not made: Redis does nothing else meanwhile.
local spent, most = 0, 500

-- mistyped returns true for the error of reading a value of another type, and raises any other.
local function mistyped(err)
  if not string.find(err, 'WRONGTYPE', 1, true) then error(err) end
  return true
end
