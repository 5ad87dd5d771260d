-- mistyped returns a foreign value for the error of reading a key of another type, and raises any
-- other error.
function mistyped(err)
  if not string.find(err, 'WRONGTYPE', 1, true) then error(err) end
  return 'foreign'
end
