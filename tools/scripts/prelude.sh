# What every file tool begins with. The parameters and the payload come on standard input, one
# parameter a line; the answer leaves on standard output (answers.go says how it is written).
export LC_ALL=C
umask 022
unset CDPATH GREP_OPTIONS POSIXLY_CORRECT

# say WORD: end with the outcome WORD.
say() {
	printf 'sandjet %s\n.\n' "$1"
	exit 0
}

# need PROGRAM...: end when one is absent. A pipeline without it would find nothing, and not say why.
need() {
	for program; do
		command -v "$program" >/dev/null 2>&1 || {
			printf '%s\n' "$program" >&2
			exit 127
		}
	done
}

# why FILE WORD: end with what the message in FILE tells, else with WORD.
why() {
	case $(cat "$1") in
	*'o space'* | *quota*) say no_space ;;
	*'ead-only'*) say read_only ;;
	*denied* | *'not permitted'*) say denied ;;
	*) cat "$1" >&2; say "$2" ;;
	esac
}

# scratch: make the private directory $tmp, gone at the end.
scratch() {
	tmp=$(mktemp -d "${TMPDIR:-/tmp}/sandjet.XXXXXXXX") || say no_scratch
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 143' TERM
	trap 'exit 130' INT
}

# resolve PATH: follow PATH below the working directory as the kernel does with RESOLVE_BENEATH;
# $file is where it leads, "." for the top. $broken is 1 when its last name is a link that leads to
# nothing, 2 when another one is.
resolve() {
	rest=$1 real='' links=0 broken=0 last=0
	while [ -n "$rest" ]; do
		part=${rest%%/*}
		case $rest in
		*/*) rest=${rest#*/} ;;
		*) rest='' ;;
		esac
		case $part in
		'' | .) continue ;;
		..)
			[ -n "$real" ] || say escape
			[ -d "./$real" ] || say not_found
			case $real in
			*/*) real=${real%/*} ;;
			*) real='' ;;
			esac
			continue
			;;
		esac
		next=${real:+$real/}$part
		if [ -h "./$next" ]; then
			links=$((links + 1))
			[ "$links" -le 40 ] || say loop
			target=$(readlink "./$next") || say not_found
			case $target in
			/*) say escape ;;
			esac
			[ -n "$rest" ] || last=1
			[ -e "./$next" ] || [ "$broken" != 0 ] || broken=$((2 - last))
			rest=$target${rest:+/$rest}
			continue
		fi
		[ -z "$rest" ] || [ -d "./$next" ] || [ ! -e "./$next" ] || say not_directory
		real=$next
	done
	file=./$real
	[ -n "$real" ] || file=.
}

# must_be_file: end unless $file is a regular file that can be read.
must_be_file() {
	[ ! -d "$file" ] || say is_directory
	[ -e "$file" ] || say not_found
	[ -f "$file" ] || say not_regular
	[ -r "$file" ] || say denied
}

# may_be_written: end when $file exists and must not be written over.
may_be_written() {
	[ ! -d "$file" ] || say is_directory
	[ -e "$file" ] || return 0
	[ -f "$file" ] || say not_regular
	[ "$(stat -c %h "$file")" -le 1 ] || say hard_link
	# In a shell of its own: some end when a redirection fails.
	(: >>"$file") 2>"$tmp/err" || why "$tmp/err" denied
}

# put: write $tmp/new over $file, in place: a mount of an object store can do no other. It is on
# the disk when this returns.
put() {
	dd if="$tmp/new" of="$file" bs=1048576 conv=fsync 2>"$tmp/err" || why "$tmp/err" failed
}

IFS= read -r path
