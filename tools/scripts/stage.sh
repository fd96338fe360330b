# stage: NAME, DIGEST, TOKEN, FILES BYTES, PART LAST; a part of the tar in base64. Part "-" only looks.
name=$path
IFS= read -r digest
IFS= read -r token
IFS=' ' read -r files bytes
IFS=' ' read -r part last
need base64 cat chmod cp find mkdir mktemp mv rm sha256sum tar wc
mark=.sandjet-skill

# whole DIR: it is the skill, marked when all of it was there, and nothing of it was taken away since.
whole() {
	[ -f "$1/$mark" ] && [ "$(cat "$1/$mark")" = "$digest" ] &&
		[ "$(find "$1" -type f ! -name "$mark" | wc -l)" -eq "$files" ] &&
		[ "$(find "$1" -type f ! -name "$mark" -exec cat {} + | wc -c)" -eq "$bytes" ]
}
# foreign DIR: somebody else has made it.
foreign() { [ -h "$1" ] || { [ -e "$1" ] && [ ! -f "$1/$mark" ]; }; }

! foreign ".agents/skills/$name" || say exists
if whole ".agents/skills/$name" && { whole ".claude/skills/$name" || foreign ".claude/skills/$name"; }; then
	printf 'sandjet ok\n=1\n.\n'
	exit 0
fi
if [ "$part" = - ]; then
	printf 'sandjet ok\n=0\n.\n'
	exit 0
fi
scratch
for dir in .agents/skills .claude/skills; do
	mkdir -p "$dir" 2>"$tmp/err" || why "$tmp/err" failed
	# What died here long ago.
	find "$dir" -maxdepth 1 -name '.sandjet-stage-*' -mmin +60 -exec rm -rf {} + 2>/dev/null
done
hold=.agents/skills/.sandjet-stage-$token
mkdir -p "$hold" 2>"$tmp/err" || why "$tmp/err" failed
base64 -d 2>"$tmp/err" >"$hold/part.$part" || why "$tmp/err" failed
if [ "$last" != 1 ]; then
	printf 'sandjet ok\n=0\n.\n'
	exit 0
fi
cat "$hold"/part.* 2>"$tmp/err" >"$tmp/tar" || why "$tmp/err" failed
rm -rf "$hold"
hash=$(sha256sum <"$tmp/tar") || say failed
[ "${hash%% *}" = "$digest" ] || say changed
mkdir "$tmp/skill" && tar -xf "$tmp/tar" -C "$tmp/skill" 2>"$tmp/err" || why "$tmp/err" failed
find "$tmp/skill" -type f -exec chmod a-w {} +

# place DIR: put the skill there, aside first, and in the place of what is there in one step.
place() {
	target=$1/$name new=$1/.sandjet-stage-$token.new old=$1/.sandjet-stage-$token.old
	! whole "$target" || return 0
	rm -rf "$new"
	cp -pR "$tmp/skill" "$new" 2>"$tmp/err" || cp -R "$tmp/skill" "$new" 2>"$tmp/err" || why "$tmp/err" failed
	printf '%s\n' "$digest" >"$new/$mark"
	for try in 1 2 3 4 5; do
		if foreign "$target" || whole "$target"; then
			rm -rf "$new"
			return 0
		fi
		if [ -e "$target" ]; then
			mv -T "$target" "$old" 2>"$tmp/err" || break
			rm -rf "$old"
		fi
		! mv -T "$new" "$target" 2>"$tmp/err" || return 0
		[ -e "$target" ] || break # others are not in the way: this file system moves no folders
	done
	# File by file, and the mark last.
	rm -rf "$target"
	mkdir "$target" 2>"$tmp/err" && cp -R "$tmp/skill/." "$target/" 2>"$tmp/err" || why "$tmp/err" failed
	printf '%s\n' "$digest" >"$target/$mark"
	rm -rf "$new"
}
place .agents/skills
foreign ".claude/skills/$name" || place .claude/skills
printf 'sandjet ok\n=0\n.\n'
