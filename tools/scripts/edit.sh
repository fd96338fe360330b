# edit: PATH; 1 to replace every match, most bytes of a file before and after, number of pairs; each
# pair as two lines of base64: the old text and the new one. The first pair whose old text occurs is
# used.
need awk base64 cat dd mktemp readlink rm sha256sum stat tr wc
IFS=' ' read -r all most grown pairs
scratch
i=0
while [ "$i" -lt "$pairs" ]; do
	i=$((i + 1))
	for side in old new; do
		IFS= read -r line
		# The x keeps a line break at the end of the text from being lost.
		{ printf '%s\n' "$line" | base64 -d && printf x; } >"$tmp/$side$i" || say failed
	done
done
resolve "$path"
must_be_file
may_be_written
size=$(stat -c %s "$file") || say failed
[ "$size" -le "$most" ] || say too_large
{ cat "$file" && printf x; } >"$tmp/was" 2>"$tmp/err" || why "$tmp/err" failed
[ "$(tr -d '\000' <"$tmp/was" | wc -c)" -eq "$((size + 1))" ] || say not_text
found=$(awk -v tmp="$tmp" -v pairs="$pairs" -v all="$all" -v grown="$grown" '
# slurp reads a file, and puts it together from short texts and longer ones: each addition copies what is there.
function slurp(file,    line, whole, some, few) {
	while ((getline line < file) > 0) {
		few = few line "\n"
		if (length(few) > 512) { some = some few; few = "" }
		if (length(some) > 65536) { whole = whole some; some = "" }
	}
	close(file)
	whole = whole some few
	return substr(whole, 1, length(whole) - 2)
}
# scan walks text in pieces, and these in windows, so that a replacement costs no copy of the whole; some awks
# measure a text each time they take a part of it. A match in a piece begins in its first width bytes.
function scan(text, old, new, write,    n, at, end, size, width, step, piece, used, all, some, i) {
	end = length(text); size = length(old)
	width = size > 16384 ? size : 16384
	step = size > 128 ? size : 128
	for (at = 1; at <= end; at += used) {
		piece = substr(text, at, width + size - 1)
		all = length(piece)
		if (all > width) all = width
		for (used = 0; used < all;) {
			some = substr(piece, used + 1, step + size - 1)
			i = index(some, old)
			if (i) {
				n++
				if (write) { print substr(some, 1, i - 1) > write; print new > write }
				used += i - 1 + size
			} else {
				i = all - used < step ? all - used : step
				if (write) print substr(some, 1, i) > write
				used += i
			}
		}
	}
	return n + 0
}
BEGIN {
	ORS = ""
	text = slurp(tmp "/was")
	for (p = 1; p <= pairs; p++) {
		old = slurp(tmp "/old" p)
		n = scan(text, old, "", "")
		if (n) break
	}
	if (n == 1 || (n && all == 1)) {
		put = slurp(tmp "/new" p)
		# Before it is made: every match of a short text may become a long one.
		size = length(text) + n * (length(put) - length(old))
		if (size > grown) {
			printf "grown %.0f", size
			exit
		}
		new = tmp "/new"
		printf "" > new
		scan(text, old, put, new)
		close(new)
	}
	print n
}' </dev/null 2>"$tmp/err") || why "$tmp/err" failed
case $found in
grown*)
	printf 'sandjet grown\n=%s\n.\n' "${found#grown }"
	exit 0
	;;
esac
[ "$found" != 0 ] || say no_match
if [ "$found" != 1 ] && [ "$all" != 1 ]; then
	printf 'sandjet many\n=%s\n.\n' "$found"
	exit 0
fi
put
hash=$(sha256sum <"$tmp/new")
printf 'sandjet ok\n=%s\n=%s\n#%s\n.\n' "$found" "$(($(wc -c <"$tmp/new")))" "${hash%% *}"
