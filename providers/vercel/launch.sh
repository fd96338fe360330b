# Runs a program whose input is a pipe and whose outputs are numbered pieces of base64, a line each: "1 aGVsbG8K". Standard output has
# those of its standard output, standard error those of its standard error; "3 end" follows the last. Lines with the number 0 say what
# became of the program. Arguments: the name of a folder, for how many seconds the program waits for a second word, the program.
umask 077
dir=/tmp/.sandjet-$1 patience=$2
shift 2
exec 3>&1 4>&2 >/dev/null 2>&1 </dev/null
if ! mkdir "$dir" || ! mkfifo "$dir/in" "$dir/o" "$dir/e" || ! mv "$dir.first" "$dir/first"; then
  rm -rf "$dir" "$dir.first"
  echo '0 full' >&3
  exit 1
fi
# pump prints a piece when there is one, at most 16 ahead of what the worker has taken: whoever prints more waits. When the program has
# ended it prints what is left, and when the folder is gone nobody reads.
pump() {
  n=0 taken=0 late=0
  while :; do
    dd bs=49152 count=1 of="$dir/$1.new" || exec cat >/dev/null
    [ -s "$dir/$1.new" ] || break
    n=$((n + 1))
    text=$(base64 "$dir/$1.new" | tr -d '\n') && [ -n "$text" ] || exec cat >/dev/null
    echo "$n" >"$dir/$1.printed" # before it is: who finds no more than it has read has read all
    printf '%s %s\n' "$n" "$text" >&5
    while [ $((n - taken)) -ge 16 ]; do
      if [ -e "$dir/over" ]; then
        late=$((late + 1))
        [ "$late" -lt 64 ] || exec cat >/dev/null
        break
      fi
      [ -d "$dir" ] || exec cat >/dev/null
      read -r taken <"$dir/$1.taken" || taken=0
      [ $((n - taken)) -lt 16 ] || sleep 0.03
    done
  done
  echo "$n end" >&5
}
set -m # else what it starts ignores signals of the keyboard
exec 8<>"$dir/in"
{ cat "$dir/first" >&8; rm -f "$dir/first"; } 3>&- 4>&- &
(exec 5>&3 3>&- 4>&- 8>&- <"$dir/o"; pump o) & out=$!
(exec 5>&4 3>&- 4>&- 8>&- <"$dir/e"; pump e) & errs=$!
(exec <&8 >"$dir/o" 2>"$dir/e" 3>&- 4>&- 8>&-; exec "$@") & program=$!
{ sleep "$patience"; [ -e "$dir/told" ] || kill -KILL "$program"; } 3>&- 4>&- 8>&- & clock=$!
wait "$program"
: >"$dir/over"
echo '0 over' >&3
kill -KILL -- "-$clock"
for i in {1..1200}; do
  [ -d "$dir" ] || break
  kill -0 "$out" || kill -0 "$errs" || break
  sleep 0.1
done
rm -rf "$dir"
exit 0
