# One command, watched over from inside of its box. doc.go describes what is said on standard input and output.
#
# It works in bash, dash and busybox sh, with head, mkdir, rm and /proc.

# say WORDS... tells the worker something on both outputs, which no command writes to before "ready" or after "end".
say() {
  printf '\001%s %s\n' "$nonce" "$*" >&4
  printf '\001%s %s\n' "$nonce" "$*"
}

# count_oom sets oom: how many processes of this box the kernel has killed for want of memory.
count_oom() {
  oom=0
  for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
    [ -r "$file" ] || continue
    while read -r key value; do
      [ "$key" != oom_kill ] || oom=$value
    done <"$file"
  done
}

# find_tree sets tree: the living processes with the mark of this command, without forking, for there may be no room for that.
# With stopping set it stops each as soon as it has found it, and begins with the numbers that were given last, which is where
# a chain is met in which each process starts the next one and ends. It sets missed when one was started meanwhile, for that
# one may be of this command too, and its parent have ended before it was looked at.
find_tree() {
  tree= missed= recent=
  { read -r a b c rest last; } </proc/loadavg
  youngest=${stopping:+${last:-0}}
  while [ "${youngest:-0}" -gt 0 ] && [ "$((last - youngest))" -lt 8 ]; do
    recent="$recent /proc/$youngest"
    youngest=$((youngest - 1))
  done
  for process in $recent /proc/[0-9]*; do
    {
      while read -r a b c value rest; do
        if [ "$a $b $c" = "Max file locks" ]; then
          if [ "$value" = "$mark" ]; then
            [ -z "$stopping" ] || kill -STOP "${process#/proc/}"
            tree="$tree ${process#/proc/}"
          fi
          break
        fi
      done <"$process/limits"
    } 2>/dev/null
  done
  living=
  for process in $tree; do
    state=Z
    { read -r state <"/proc/$process/stat"; } 2>/dev/null
    state=${state##*) }
    case $state in
    [ZX]*) ;;
    *) living="$living $process" ;;
    esac
  done
  tree=$living
  { read -r a b c rest value; } </proc/loadavg
  [ "$last" = "$value" ] || missed=1
}

# kill_tree ends all that the command has started. Stopped first, they cannot start more while they are being killed.
# Beside others that start processes all the time, twelve looks in a row that find nothing are enough. With still set it gives
# up after so many looks in a row that find the same.
kill_tree() {
  pass=0 empty=0 met=0 same=0 former= stopping=1
  while [ "$pass" -lt 500 ] && [ "$same" -lt "${still:-500}" ]; do
    pass=$((pass + 1))
    find_tree
    if [ -z "$tree" ]; then
      empty=$((empty + 1))
      [ -n "$missed" ] && [ "$empty" -lt 12 ] || break
      continue
    fi
    empty=0 met=$((met + 1)) same=$((same + 1))
    [ "$tree" = "$former" ] || same=0
    former=$tree
    [ "$met" -lt 2 ] || kill -KILL $tree
    [ "$met" -lt 20 ] || stopping=
  done
  stopping=
  [ -z "$tree" ]
}

# listen obeys the worker until it goes away, or the time is over after which nobody can be there any more.
listen() {
  while read $patience -r word; do
    [ "$word" = term ] || break
    kill -USR1 $$
    find_tree
    [ -z "$tree" ] || kill -TERM $tree
    [ -z "$tree" ] || kill -CONT $tree
  done
  kill -USR1 $$
  kill_tree || exit
  while kill -0 $$; do # until the parent of all has seen it, who may be starting the command just now
    find_tree
    [ -z "$tree" ] || kill -KILL $tree
    sleep 1
  done
}

exec 4>&2 2>/dev/null
if [ "$1" = sweep ]; then # what a program has left that was killed
  mark=$2 still=$3
  kill_tree || exit 75 # [SweepResult] reads it: no shell, loader or engine ends with it by itself
  exit 0
fi
patience= # the worker says all at once: where it has died, and the engine keeps the input open, the program ends by itself
{ read -t 0.01 -r word </dev/null; }
[ $? -gt 1 ] || patience="-t 60"
read $patience -r nonce mark limit code_bytes script_bytes input_bytes shell || exit 1
ending= stopping= files= script= directory=/ input=/dev/null
if [ "$script_bytes" -gt 0 ] || [ "$input_bytes" -gt 0 ]; then
  for base in /dev/shm "${TMPDIR:-/tmp}" /tmp; do
    files=$base/.sandjet-run-$nonce
    mkdir -m 700 "$files" && break
    files=
  done
  if [ -z "$files" ] || ! head -c $((code_bytes + script_bytes + input_bytes)) >"$files/all"; then
    say full
    [ -z "$files" ] || rm -rf "$files"
    exit 1
  fi
  code=$(head -c "$code_bytes" "$files/all"; echo x)
  if [ "$script_bytes" -gt 0 ]; then
    tail -c +$((code_bytes + 1)) "$files/all" | head -c "$script_bytes" >"$files/script"
  fi
  tail -c +$((code_bytes + script_bytes + 1)) "$files/all" >"$files/input" || { say full; rm -rf "$files"; exit 1; }
  rm -f "$files/all"
  input=$files/input
else
  code=$(head -c "$code_bytes"; echo x)
fi
eval "${code%x}" # sets script and directory, and defines variables
trap 'ending=1' USR1
trap '' HUP INT QUIT PIPE
if ! cd -- "$directory"; then
  say nodirectory
  [ -z "$files" ] || rm -rf "$files"
  exit 1
fi
count_oom
before=$oom
say ready
read $patience -r word
[ "$word" = go ] || exit 1
[ -z "$patience" ] || patience="-t $limit"
exec 3<&0 </dev/null
listen <&3 >/dev/null 2>&1 4>&- &
listener=$!
exec 3<&-
(
  trap - HUP INT QUIT PIPE USR1
  ulimit -x "$mark" || ulimit -w "$mark"
  detach=
  command -v setsid >/dev/null && detach=setsid
  exec <"$input" 2>&4 4>&-
  if [ "$script_bytes" -gt 0 ]; then
    set -- $detach "$shell" "$files/script"
  else
    set -- $detach "$shell" -c -- "$script"
  fi
  variables 2>/dev/null
  exec "$@"
)
code=$?
if [ -n "$ending" ]; then
  kill_tree || exit 1
fi
kill -KILL "$listener"
[ -z "$files" ] || rm -rf "$files"
count_oom
say end "$code" $((oom - before))
