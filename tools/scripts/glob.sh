# glob: PATH; expression for the paths below it; 1 to look into hidden folders, 1 to find folders
# too, the order, most paths and bytes.
need base64 cut find grep head mktemp readlink rm sed sort stat tr wc xargs
IFS= read -r want
IFS=' ' read -r hidden dirs order most bytes
scratch
resolve "$path"
[ -e "$file" ] || say not_found
[ -d "$file" ] || say not_directory
cd "./$file" 2>/dev/null || say denied
printf '%s\n' "$want" >"$tmp/want"
skip='.?*'
[ "$hidden" = 0 ] || skip='
'
kind=f
[ "$dirs" = 0 ] || kind=d
find . \( -name "$skip" -o -name '*
*' \) -prune -o ! -name . \( -type f -o -type "$kind" \) -print 2>/dev/null |
	sed 's,^\./,,' | grep -aE -f "$tmp/want" >"$tmp/list"
if [ "$order" = newest ]; then
	# To the nanosecond, where stat can tell.
	format='%.9Y %n'
	case $(stat -c %.9Y . 2>/dev/null) in
	*[!0-9.]* | '') format='%Y %n' ;;
	esac
	tr '\n' '\000' <"$tmp/list" | xargs -0 stat -c "$format" -- 2>/dev/null | sort -t ' ' -k 1,1nr -k 2 | cut -d ' ' -f 2- >"$tmp/sorted"
else
	sort "$tmp/list" >"$tmp/sorted"
fi
printf 'sandjet ok\n=%s\n-\n' "$(($(wc -l <"$tmp/sorted")))"
head -n "$most" "$tmp/sorted" | head -c "$bytes" | base64
printf '.\n'
