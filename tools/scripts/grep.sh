# grep: PATH; expressions for grep, for ripgrep and for the paths ("": any); mode, most lines,
# most bytes, most bytes of a file, most bytes of a line.
need base64 cut find grep head mktemp readlink rm sed sort stat tr wc xargs
IFS= read -r ere
IFS= read -r rust
IFS= read -r want
IFS=' ' read -r mode most bytes largest longest
scratch
resolve "$path"
[ -e "$file" ] || say not_found
printf '%s\n' "$ere" >"$tmp/ere"
printf '%s\n' "$rust" >"$tmp/rust"
printf '%s\n' "$want" >"$tmp/want"

engine=grep
if command -v rg >/dev/null 2>&1; then
	engine=rg
	rg --no-config -q -f "$tmp/rust" - </dev/null >/dev/null 2>&1
	[ $? -le 1 ] || engine=grep
fi
if [ "$engine" = grep ]; then
	grep -aE -f "$tmp/ere" </dev/null >/dev/null 2>"$tmp/err"
	[ $? -le 1 ] || say bad_pattern
fi
if [ "$engine" = rg ]; then
	set -- rg --no-config --encoding none --text --no-messages --no-filename --color never --no-heading -f "$tmp/rust"
else
	set -- grep -a -h -s -E -f "$tmp/ere"
fi

large=0 single=0
if [ -d "$file" ]; then
	cd "./$file" 2>/dev/null || say denied
	# all SIZE: the files that are searched, of a size that find's SIZE admits.
	all() {
		find . \( -type d \( -name .git -o -name .hg -o -name .svn -o -name .jj -o -name .bzr -o -name .sandjet \) -o -name '*
*' \) -prune -o -type f -size "$1" -print 2>/dev/null | sed 's,^\./,,' | grep -aE -f "$tmp/want"
	}
	all "-$((largest + 1))c" >"$tmp/list"
	large=$(($(all "+${largest}c" | wc -l)))
else
	must_be_file
	case $file in
	./*/*) cd "${file%/*}" || say denied ;;
	esac
	single=1
	file=${file##*/}
	: >"$tmp/list"
	if printf '%s\n' "${path##*/}" | grep -aqE -f "$tmp/want"; then
		if [ "$(stat -c %s "./$file")" -gt "$largest" ]; then
			large=1
		else
			printf '%s\n' "$file" >"$tmp/list"
		fi
	fi
fi
tr '\n' '\000' <"$tmp/list" | xargs -0 "$@" -l -- /dev/null 2>/dev/null | sort >"$tmp/hits"

# text FILE: whether the first 8 KiB are free of NUL. Bash can tell without another process.
text() {
	if [ -n "${BASH_VERSION-}" ]; then
		IFS= read -r -d '' -n 8192 some <"$1" || return 0
		[ "${#some}" -eq 8192 ]
	else
		[ "$(head -c 8192 "$1" | tr -cd '\000' | wc -c)" -eq 0 ]
	fi
}

printf 'sandjet ok\n=%s\n=%s\n-\n' "$large" "$single"
while IFS= read -r one; do
	text "./$one" || continue
	case $mode in
	content)
		printf 'F%s\n' "$one" || break
		"$@" -n -m "$((most + 1))" -- "./$one" 2>/dev/null
		;;
	count) printf '%s:%s\n' "$("$@" -c -- "./$one" 2>/dev/null)" "$one" || break ;;
	*) printf '%s\n' "$one" || break ;;
	esac
done <"$tmp/hits" 2>/dev/null | cut -b "1-$longest" | head -n "$((most + most + 2))" | head -c "$bytes" | base64
printf '.\n'
