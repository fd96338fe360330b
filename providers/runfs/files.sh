# What one question about the files of a workspace runs. Its working directory is the root of the workspace. Parameters come on
# standard input, one a line, and after them what is to be written; package runfs reads the answer.
export LC_ALL=C TZ=UTC0
umask 022
unset CDPATH POSIXLY_CORRECT
form='%f %s %i %h %Y %y %Z %z' # how programs describe a file

IFS= read -r mark
IFS= read -r op
IFS= read -r path

# say WORD: end with the outcome WORD.
say() {
	printf '\nsandjet %s %s\nsandjet %s .\n' "$mark" "$1" "$mark"
	exit 0
}

# ok: begin the answer of what was done.
ok() { printf '\nsandjet %s ok\n' "$mark"; }

# end: end the answer.
end() {
	printf 'sandjet %s .\n' "$mark"
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

# why TEXT WORD: end with the reason that a program gives behind the last name in its message, else with WORD.
why() {
	case ${1##*: } in
	*'o space'* | *uota*) say no_space ;;
	*'ead-only'*) say read_only ;;
	*denied* | *'not permitted'*) say denied ;;
	*'ame too long'*) say name_too_long ;;
	*'o such file'*) say not_found ;;
	*'ot a directory'*) say not_directory ;;
	*'s a directory'*) say is_directory ;;
	*'not empty'*) say not_empty ;;
	*'ymbolic link'*) say loop ;;
	esac
	printf '%s\n' "$1" >&2
	say "$2"
}

# lacks FILE: end with why FILE cannot be described.
lacks() {
	text=$(stat -c %f -- "$1" 2>&1 >/dev/null)
	why "$text" not_found
}

# resolve PATH: follow PATH below the root as the kernel does with RESOLVE_BENEATH; $real is where it leads, empty for the root.
# $broken is 1 when its last name is a link that leads to nothing, 2 when another one is.
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
}

# go_into DIR: go into DIR, or end with why that cannot be. What is exchanged meanwhile is tried again.
go_into() {
	tries=0
	until cd -P -- "./$1" 2>/dev/null; do
		if [ -d "./$1" ]; then
			tries=$((tries + 1))
			[ -x "./$1" ] && [ "$tries" -lt 9 ] || say denied
		elif [ -e "./$1" ]; then
			say not_directory
		else
			lacks "./$1"
		fi
	done
}

# enter DIR: go into the folder DIR, which resolve has found, and see that it is where it was.
enter() {
	go_into "$1"
	[ "${PWD%/}" = "${root%/}${1:+/$1}" ] || say escape
}

# part_of: $dir and $base are the folder and the name of $real.
part_of() {
	case $real in
	*/*) dir=${real%/*} base=${real##*/} ;;
	*) dir='' base=$real ;;
	esac
}

# locate: go to where $path leads; $file is its name there, "." for the root.
locate() {
	resolve "$path"
	part_of
	enter "$dir"
	file=./$base
	[ -n "$base" ] || file=.
}

# locate_itself PATH: as locate, and $file may be a link.
locate_itself() {
	case $1 in
	*/*) resolve "${1%/*}" ;;
	*) resolve '' ;;
	esac
	enter "$real"
	file=./${1##*/}
}

# must_be_file: end unless $file is a regular file.
must_be_file() {
	[ ! -h "$file" ] || say changed
	[ ! -d "$file" ] || say is_directory
	[ -e "$file" ] || lacks "$file"
	[ -f "$file" ] || say not_regular
}

# look FILE: learn what FILE is.
look() {
	text=$(stat -c "$form" -- "$1" 2>&1) || return 1
	about=$text
	set -- $text
	perm=$((0x$1 & 07777)) size=$2 inode=$3 links=$4 sec=$5 ns=000000000
	case $7 in
	*.?????????) ns=${7#*.} ;;
	esac
	now="$inode $size $sec $ns"
}

# as_it_was: the file that look has seen is the one of $was.
as_it_was() {
	case $was in
	-) return 0 ;;
	'- '*) [ "$was" = "- ${now#* }" ] ;;
	*) [ "$was" = "$now" ] ;;
	esac
}

# described FILE: answer what FILE is.
described() {
	text=$(stat -c "$form" -- "$1" 2>&1) || why "$text" failed
	ok
	printf '= %s\n' "$text"
}

# settle: have the folder's names on its disk.
settle() { sync . >/dev/null 2>&1 || :; }

# packed MOST: answer with the standard input, up to MOST bytes when it is packed.
packed() {
	if command -v gzip >/dev/null 2>&1; then
		printf 'z\n'
		gzip -c | head -c "$1" | base64
	else
		printf -- '-\n'
		head -c "$1" | base64
	fi
}

ask_stats() {
	IFS= read -r n
	ok
	while [ "$n" -gt 0 ]; do
		(
			say() { printf '! %s\n' "$1"; exit 0; }
			locate
			[ -e "$file" ] || lacks "$file"
			text=$(stat -c "$form" -- "$file" 2>&1) || why "$text" failed
			printf '= %s\n' "$text"
		) </dev/null
		n=$((n - 1))
		[ "$n" = 0 ] || IFS= read -r path
	done
	end
}

ask_read() {
	need base64 dd head tail
	IFS=' ' read -r offset length
	IFS= read -r was
	locate
	must_be_file
	[ -r "$file" ] || say denied
	tries=0
	while :; do
		look "$file" || why "$text" failed
		[ "$links" -ge 1 ] && as_it_was || say changed
		began=$now
		n=$((size - offset))
		[ "$n" -le "$length" ] || n=$length
		piece=''
		if [ "$n" -gt 0 ]; then
			piece=$(dd if="$file" bs=65536 skip=$((offset / 65536)) count=$(((offset % 65536 + n + 65535) / 65536)) 2>/dev/null |
				tail -c "+$((offset % 65536 + 1))" | head -c "$n" | base64)
		fi
		look "$file" || why "$text" failed
		[ "$began" != "$now" ] || break
		tries=$((tries + 1))
		[ "$tries" -lt 50 ] || say changed
	done
	ok
	printf '= %s\n-\n%s\n' "$about" "$piece"
	end
}

# publish HOW: give the new file $tmp its name, once its mode is right, and answer what it is.
publish() {
	look "$tmp" || why "$text" failed
	if [ "$1" = over ]; then
		text=$(mv -fT -- "$tmp" "$file" 2>&1) || why "$text" failed
	elif ! text=$(ln -T -- "$tmp" "$file" 2>&1); then
		[ ! -e "$file" ] && [ ! -h "$file" ] || say exists
		case ${text##*: } in
		*'not permitted'* | *upported* | *mplemented* | *'Invalid argument'*) ;;
		*) why "$text" failed ;;
		esac
		# It has no hard links. With noclobber a file that is there stays.
		text=$( (set -C && cat "$tmp" >"$file") 2>&1) || {
			[ ! -e "$file" ] && [ ! -h "$file" ] || say exists
			why "$text" failed
		}
		about=$(stat -c "$form" -- "$file" 2>&1) || why "$about" failed
	fi
	settle
	ok
	printf '= %s\n' "$about"
	end
}

ask_write() {
	need cat chmod dd ln mkdir mktemp mv rm
	IFS=' ' read -r mode length
	IFS= read -r was
	resolve "$path"
	part_of
	[ -n "$base" ] || say is_directory
	if [ ! -d "./$dir" ]; then
		[ "$was" = - ] || say changed
		[ "$broken" = 0 ] || say not_found
		text=$(mkdir -p -- "./$dir" 2>&1) || why "$text" failed
	fi
	enter "$dir"
	file=./$base there=0
	[ ! -h "$file" ] || say changed
	[ ! -e "$file" ] || there=1
	if [ "$there" = 1 ]; then
		[ ! -d "$file" ] || say is_directory
		[ -f "$file" ] || say not_regular
		[ "$mode" != create ] || say exists
		look "$file" || why "$text" failed
		[ "$links" -le 1 ] || say hard_link
		as_it_was || say changed
	elif [ "$was" != - ]; then
		say changed
	fi
	tmp=$(mktemp ./.sandjet-XXXXXXXXXX 2>&1) || why "$tmp" failed
	trap 'rm -f -- "$tmp"' EXIT
	trap 'exit 143' TERM
	trap 'exit 130' INT
	text=$(dd of="$tmp" bs=65536 conv=fsync 2>&1) || why "$text" failed
	[ "$(stat -c %s -- "$tmp")" = "$length" ] || say incomplete
	if [ "$there" = 0 ]; then
		chmod 644 "$tmp" || say failed
		[ "$mode" = replace ] && publish over
		publish beside
	fi
	before=$now
	if [ "$mode" = replace ]; then
		owner=$(stat -c %u:%g -- "$file" 2>&1) || why "$owner" failed
		[ "$(stat -c %u:%g -- "$tmp")" = "$owner" ] || chown "$owner" "$tmp" 2>/dev/null || :
		chmod "$(printf %o "$perm")" "$tmp" || say failed
	fi
	look "$file" && [ "$now" = "$before" ] || say changed
	case $mode in
	replace) publish over ;;
	inplace) text=$(dd if="$tmp" of="$file" bs=65536 conv=fsync 2>&1) || why "$text" failed ;;
	append)
		if [ "$was" = - ]; then
			text=$( (cat "$tmp" >>"$file") 2>&1) || why "$text" failed
			sync "$file" 2>/dev/null || :
		else
			# At the place where it belongs: what another run writes there at the same time is the same piece.
			block=65536
			while [ $((size % block)) != 0 ]; do block=$((block / 2)); done
			text=$(dd if="$tmp" of="$file" ibs=65536 obs="$block" seek=$((size / block)) conv=notrunc,fsync 2>&1) || why "$text" failed
		fi
		;;
	esac
	described "$file"
	end
}

ask_mkdir() {
	need mkdir
	resolve "$path"
	[ "$broken" = 0 ] || say not_directory
	if [ ! -d "./$real" ]; then
		[ ! -e "./$real" ] || say not_directory
		text=$(mkdir -p -- "./$real" 2>&1) || why "$text" not_directory
		part_of
		sync "./$dir" >/dev/null 2>&1 || :
	fi
	enter "$real"
	described .
	end
}

ask_remove() {
	need rm rmdir
	locate_itself "$path"
	if [ -d "$file" ] && [ ! -h "$file" ]; then
		text=$(rmdir -- "$file" 2>&1) || {
			case ${text##*: } in
			*'ile exists'*) say not_empty ;;
			esac
			why "$text" failed
		}
	else
		[ -e "$file" ] || [ -h "$file" ] || lacks "$file"
		text=$(rm -f -- "$file" 2>&1) || why "$text" failed
	fi
	settle
	ok
	end
}

ask_rmtree() {
	need rm
	locate_itself "$path"
	[ -e "$file" ] || [ -h "$file" ] || lacks "$file"
	text=$(rm -rf -- "$file" 2>&1) || case ${text##*: } in
	*'not empty'* | *'ile exists'*) ;; # something was put there meanwhile
	*) why "$text" failed ;;
	esac
	settle
	ok
	if [ -e "$file" ] || [ -h "$file" ]; then printf 'more\n'; fi
	end
}

ask_rename() {
	need mv
	IFS= read -r to
	locate_itself "$path"
	[ -e "$file" ] || [ -h "$file" ] || lacks "$file"
	from=${PWD%/}/${file#./}
	cd -P -- "$root" || say not_found
	locate_itself "$to"
	target=${PWD%/}/${file#./}
	if [ "$from" != "$target" ]; then
		[ ! -d "$file" ] || [ -h "$file" ] || say is_directory
		if [ -d "$from" ] && [ ! -h "$from" ]; then
			[ ! -e "$file" ] && [ ! -h "$file" ] || say exists
			case $PWD/ in
			"$from"/*) say bad_name ;;
			esac
		fi
		text=$(mv -fT -- "$from" "$file" 2>&1) || why "$text" failed
		settle
		(cd -P -- "${from%/*}/" && settle)
	fi
	described "$file"
	end
}

# go_to_folder FOLLOW: go into the folder $path, where it may be read.
go_to_folder() {
	if [ "$1" = 0 ] && [ "$path" != . ]; then
		locate_itself "$path"
		[ ! -h "$file" ] || say not_directory
		enter_here "${file#./}"
	else
		resolve "$path"
		enter "$real"
	fi
	[ -r . ] && [ -x . ] || say denied
}

# enter_here NAME: as enter, from where the shell is.
enter_here() {
	here=${PWD%/}
	go_into "$1"
	[ "$PWD" = "$here/$1" ] || say not_directory
}

ask_list() {
	need base64 find head
	IFS=' ' read -r follow most output
	go_to_folder "$follow"
	ok
	{
		find . ! -name . -prune -exec stat -c "//$form,%n" {} + 2>/dev/null
		printf '//.\n'
	} | head -c "$most" | packed "$output"
	end
}

ask_walk() {
	need base64 find head
	IFS=' ' read -r follow most output
	go_to_folder "$follow"
	ok
	{
		find . -xdev ! -name . -exec stat -c "//$form,%n" {} + 2>/dev/null
		printf '//.\n'
	} | head -c "$most" | packed "$output"
	end
}

# go_down PATH: go into the folder PATH, which is reached by no link.
go_down() {
	rest=$1
	[ "$rest" != . ] || return 0
	while [ -n "$rest" ]; do
		part=${rest%%/*}
		case $rest in
		*/*) rest=${rest#*/} ;;
		*) rest='' ;;
		esac
		[ ! -h "./$part" ] || say not_directory
		enter_here "$part"
	done
}

# tree DEPTH HIDDEN: describe all but folders here and so many folders below, where DEPTH is less than 0 in all of them.
tree() {
	depth=$1 hidden=$2
	set -- .
	[ "$depth" -lt 0 ] || set -- "$@" -maxdepth $((depth + 1))
	set -- "$@" -xdev
	[ "$hidden" = 1 ] || set -- "$@" -name '.?*' -prune -o
	find "$@" ! -type d -exec stat -c "//$form,%n" {} + 2>/dev/null
}

ask_trees() {
	need base64 find head
	IFS=' ' read -r n most output
	ok
	i=0
	while [ "$i" -lt "$n" ]; do
		IFS=' ' read -r depth hidden
		IFS= read -r path
		printf '\n//@%s\n' "$i"
		(
			say() { printf '//.\n'; exit 0; } # it has no entries
			go_down "$path"
			[ -r . ] && [ -x . ] || say denied
			tree "$depth" "$hidden"
			say whole
		) </dev/null | head -c "$most"
		i=$((i + 1))
	done | packed "$output"
	end
}

ask_sums() {
	need sha256sum
	IFS= read -r n
	set --
	while :; do # no program for each
		[ -f "./$path" ] && [ ! -h "./$path" ] && [ -r "./$path" ] || say changed
		set -- "$@" "./$path"
		n=$((n - 1))
		[ "$n" -gt 0 ] || break
		IFS= read -r path
	done
	ok
	stat -c "= $form" -- "$@" 2>/dev/null
	sha256sum -- "$@" 2>/dev/null </dev/null | while IFS=' ' read -r sum _; do
		printf '# %s\n' "${sum#\\}"
	done
	stat -c "= $form" -- "$@" 2>/dev/null
	end
}

ask_mark() {
	need chmod touch
	IFS=' ' read -r executable time
	locate
	must_be_file
	look "$file" || why "$text" failed
	[ "$links" -le 1 ] || say hard_link
	if [ "$executable" != - ]; then # those who may read it may run it
		perm=$((perm & 0777 & ~0111 | executable * ((perm & 0444) / 4)))
		text=$(chmod "$(printf %o "$perm")" "$file" 2>&1) || why "$text" failed
	fi
	if [ "$time" != - ]; then
		text=$(touch -c -m -d "@$time" -- "$file" 2>&1) || why "$text" failed
	fi
	described "$file"
	end
}

need readlink stat
cd -P . 2>/dev/null || say not_found
root=$PWD
case $op in
stats | read | write | mkdir | remove | rmtree | rename | list | walk | trees | sums | mark) "ask_$op" ;;
esac
exit 1
