# write: PATH; mode, hash of the present content ("-": any); the content in base64.
need base64 cat dd mkdir mktemp readlink rm sha256sum stat
IFS=' ' read -r mode match
scratch
base64 -d >"$tmp/new" 2>"$tmp/err" || why "$tmp/err" failed
resolve "$path"
[ "$broken" != 2 ] || say not_directory
[ "$file" != . ] || say is_directory
created=1
[ ! -e "$file" ] || created=0
[ "$match" = - ] || [ "$created" = 0 ] || say changed
parent=${file%/*}
if [ ! -d "$parent" ]; then
	[ "$broken" = 0 ] || say not_found
	mkdir -p "$parent" 2>"$tmp/err" || why "$tmp/err" failed
fi
[ "$mode" != create ] || [ ! -f "$file" ] || say exists
may_be_written
if [ "$match" != - ]; then
	hash=$(sha256sum <"$file") || say failed
	[ "${hash%% *}" = "$match" ] || say changed
fi
case $mode in
append)
	cat "$tmp/new" 2>"$tmp/err" >>"$file" || why "$tmp/err" failed
	sync "$file" 2>/dev/null || dd if=/dev/null of="$file" conv=notrunc,fsync 2>"$tmp/err" || why "$tmp/err" failed
	;;
*) put ;;
esac
printf 'sandjet ok\n=%s\n.\n' "$created"
