# Prints the pieces of output that have not been fetched, as soon as there are some. Arguments: the folder, how many pieces of the
# outputs o and e have arrived, and for how many seconds to wait. When all have, the folder is taken away.
cd "$1" 2>/dev/null || { echo gone; exit; }
o=$2 e=$3 until=$((SECONDS + $4)) soon=$((SECONDS + 2))
for s in o e; do
  n=${!s}
  while [ -e "$s.$n" ]; do
    rm -f "$s.$n"
    n=$((n - 1))
  done
done
while [ -d "$1" ]; do
  some=
  for s in o e; do
    n=$((${!s} + 1))
    while [ -e "$s.$n" ]; do
      echo "$s $n $(base64 <"$s.$n" | tr -d '\n')"
      some=1
      n=$((n + 1))
    done
  done
  [ -z "$some" ] || exit 0
  if [ -e o.last ] && [ -e e.last ] && [ "$(cat o.last) $(cat e.last)" = "$o $e" ]; then
    mv "$1" "$1.gone" && rm -rf "$1.gone"
    echo end
    exit
  fi
  [ "$SECONDS" -lt "$until" ] || exit 0
  if [ "$SECONDS" -lt "$soon" ]; then sleep 0.04; else sleep 0.2; fi
done
echo gone
