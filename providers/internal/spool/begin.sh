# Starts a program whose input and outputs are files of a folder, and says where that is: "begun DIR". Arguments: a random number,
# the epoch in which this sandbox must be (empty: any), the beginning of the input in base64, the program.
umask 077
read -r stat </proc/1/stat
stat=(${stat##*) })
epoch=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null).${stat[19]}.$(readlink /proc/self/ns/pid | tr -dc 0-9)
if [ "$1" = epoch ]; then
  echo "$epoch"
  exit
fi
if [ -n "$2" ] && [ "$2" != "$epoch" ]; then
  echo another
  exit
fi
dir=
for base in /dev/shm /tmp; do
  mkdir "$base/.sandjet-$1" 2>/dev/null && dir=$base/.sandjet-$1 && break
done
if [ -e "/tmp/.sandjet-$1.no" ]; then # whoever asked for it has given it up meanwhile
  rm -rf "$dir" "/tmp/.sandjet-$1.no"
  exit 1
fi
if [ -z "$dir" ] || ! mkfifo "$dir/in" || ! base64 -d <<<"$3" >"$dir/first"; then
  echo full
  exit
fi
shift 3
launch='
dir=$1
shift
# pump keeps what comes in numbered pieces, eight at a time: whoever prints more waits until they were fetched. Without the folder
# nobody reads.
pump() {
  n=0
  while :; do
    dd bs=65536 count=1 of="$dir/$1.new" 2>/dev/null || exec cat >/dev/null
    [ -s "$dir/$1.new" ] || break
    n=$((n + 1))
    mv "$dir/$1.new" "$dir/$1.$n" 2>/dev/null || exec cat >/dev/null
    while [ -e "$dir/$1.$((n - 7))" ]; do sleep 0.02; done
  done
  echo "$n" >"$dir/$1.new" && mv "$dir/$1.new" "$dir/$1.last"
}
exec 8<>"$dir/in"
{ cat "$dir/first" >&8; rm "$dir/first"; } &
(
  exec <&8 > >(exec 8>&-; pump o) 2> >(exec 8>&-; pump e) 8>&-
  exec "$@"
)
for i in {1..120}; do
  [ -d "$dir" ] || exit
  sleep 1
done
mv "$dir" "$dir.gone" && rm -rf "$dir.gone"'
(
  set -m # else it ignores signals of the keyboard, and all that it starts. What the shell says of its job is nobody's
  setsid bash -c "$launch" launch "$dir" "$@" </dev/null &
) >/dev/null 2>&1
echo "begun $dir"
