# ls: PATH; most entries and bytes.
need base64 find head mktemp readlink rm sed sort stat tr wc xargs
IFS=' ' read -r most bytes
scratch
resolve "$path"
[ -e "$file" ] || say not_found
[ -d "$file" ] || say not_directory
cd "./$file" 2>/dev/null || say denied
[ -r . ] || say denied
find . ! -name . -prune ! -name '*
*' -print 2>/dev/null | sed 's,^\./,,' | sort >"$tmp/list"
printf 'sandjet ok\n=%s\n-\n' "$(($(wc -l <"$tmp/list")))"
# The mode in hex says what it is.
head -n "$most" "$tmp/list" | tr '\n' '\000' | xargs -0 stat -c '%f %s %Y %n' -- 2>/dev/null | head -c "$bytes" | base64
printf '.\n'
