-- A value of a version that this one does not know is of another process, which runs beside this
-- one. If it counted as nothing, each of them would begin afresh whenever it comes after the other.
-- So it is an error, and stays: docs/stored.md.
for version in string.gmatch('|' .. foreign, '|(%u%d%d?) ') do
  if not string.find('VERSIONS', version, 1, true) then
    error('a newer version of redislimit has stored ' .. version .. ' at this key: upgrade this process, or reset the key;', 0)
  end
end
