# One run in a box: it starts the command that standard input brings, passes on what the command prints, ends it when
# its time is over, and says how it ended. doc.go says why; runner.go sends it and reads its records.
#
# A record is \0 \1 TOKEN, a letter, values and \n, on both outputs:
#   S                      it was started
#   N reason               nothing was started: dir, old bash, a tool that is missing, disk, or cancelled
#   E code late oom us     it ended: exit code, whether its time was over, processes that its memory limit ended, how
#                          long it took in microseconds, 0 where this bash has no clock

IFS=' ' read -r token base limit grace fresh scripts envs inputs
d=$base/$token

say() { printf '\0\1%s%s\n' "$token" "$1"; }
not() { say "N $1"; say "N $1" >&2; rm -rf "$d"; exit 0; }

# take SIZE FILE stores so many bytes of standard input. Less means that the sender is gone.
take() {
  : >"$2" || not disk
  [ "$1" -eq 0 ] || dd bs="$1" count=1 iflag=fullblock of="$2" 2>/dev/null || not disk
  [ "$(wc -c <"$2")" -eq "$1" ] || not disk
}

# pause SECONDS waits without a process that could be left over.
pause() { read -r -t "$1" _ <>"$d/never"; }

# ooms counts processes that were ended because of the box's memory limit.
ooms() {
  local f key n
  for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
    while read -r key n; do
      [ "$key" != oom_kill ] || { echo "$n"; return; }
    done <"$f"
  done 2>/dev/null
  echo 0
}

umask 077
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || not 'bash 4.4'
for tool in setsid dd mkfifo cat env grep wc rm mkdir; do
  command -v "$tool" >/dev/null || not "$tool"
done
mkdir "$d" 2>/dev/null || not cancelled
take "$scripts" "$d/script"
take "$envs" "$d/env"
take "$inputs" "$d/in"
mkfifo "$d/out" "$d/err" "$d/never" || not disk

mapfile -d '' -t env <"$d/env"
dir=${env[0]}
unset 'env[0]'
cd -- "$dir" 2>/dev/null || not dir
env+=("PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}:$d/mark" "HOME=${HOME:-/tmp}" "TMPDIR=/tmp" "LANG=${LANG:-C.UTF-8}")
args=("$d/script")
if [ "$scripts" -le 65536 ]; then
  IFS= LC_ALL=C read -r -d '' text <"$d/script"
  args=(-c -- "$text")
fi

exec 3<>"$d/out" 4<>"$d/err" 5<&0 6>&1 7>&2 </dev/null >/dev/null 2>&1
cat <"$d/out" >&6 3>&- 4>&- 5<&- 6>&- 7>&- &
outs=$!
cat <"$d/err" >&7 3>&- 4>&- 5<&- 6>&- 7>&- &
errs=$!
before=$(ooms)
[ ! -e "$d/cancelled" ] || { exec 1>&6 2>&7; kill "$outs" "$errs"; not cancelled; }
say S >&3
say S >&4
began=${EPOCHREALTIME//[!0-9]/}
(
  umask 022
  exec setsid env -i "${env[@]}" bash "${args[@]}" <"$d/in" >"$d/out" 2>"$d/err" 3>&- 4>&- 5<&- 6>&- 7>&-
) &
child=$!
(
  exec 3>&- 4>&- 5<&- 6>&- 7>&-
  pause "$limit"
  : >"$d/late"
  kill -TERM -- "-$child"
  pause "$grace"
  sweep "$d/mark"
) &
clock=$!
[ ! -e "$d/cancelled" ] || sweep "$d/mark"
wait "$child"
code=$?
took=${EPOCHREALTIME//[!0-9]/}
took=$((${took:-0} - ${began:-0}))
kill -KILL "$clock"
wait "$clock"
late=0
[ ! -e "$d/late" ] || late=1
if [ "$late$fresh" != 00 ] || [ -e "$d/cancelled" ]; then sweep "$d/mark"; fi
after=$(ooms)
say "E $code $late $((after - before)) $took" >&3
say "E $code $late $((after - before)) $took" >&4
exec 3>&- 4>&-
# What is left in a kept box may hold the pipes open. The reader says a word when it has everything.
( read -r -t 60 _ <&5; kill "$outs" "$errs" ) 6>&- 7>&- &
reader=$!
exec 6>&- 7>&-
wait "$outs" "$errs"
kill "$reader"
rm -rf "$d"
exit 0
