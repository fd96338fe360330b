# read: PATH; lines to skip, lines and bytes wanted, bytes of the beginning wanted.
need base64 head readlink sha256sum stat tail tr wc
IFS=' ' read -r skip lines most peek
resolve "$path"
must_be_file
size=$(stat -c %s "$file") || say failed
printf 'sandjet ok\n=%s\n' "$size"
newlines=-1
if [ "$size" -le 1048576 ]; then
	newlines=$(wc -l <"$file")
	hash=$(sha256sum <"$file")
	printf '#%s\n' "${hash%% *}"
else
	printf '#\n'
fi
printf -- '-\n'
head -c "$peek" "$file" | base64
printf -- '-\n'
if [ "$size" -gt 1048576 ] && [ "$(head -c 8192 "$file" | tr -cd '\000' | wc -c)" -gt 0 ]; then
	# It is binary: no page of it is shown, however far the first line is.
	printf '=-1\n=0\n.\n'
	exit 0
fi
page=$(tail -n "+$((skip + 1))" "$file" | head -n "$lines" | head -c "$most" | base64)
printf '%s\n' "$page"
[ -n "$page" ] || newlines=$(wc -l <"$file")
printf '=%s\n=%s\n.\n' "$((newlines))" "$(($(tail -c 1 "$file" | wc -l)))"
