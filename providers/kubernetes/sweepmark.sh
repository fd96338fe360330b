# It stands before the programs that end runs.

# sweep MARK ends all processes that have the mark in their environment, and fails when something stays. Stopped first,
# they cannot start more while they are being killed. A look that finds nothing counts when no process was started meanwhile
# but the two of the look: such a one may have the mark too, and its parent have ended before it was looked at. Beside others
# that start processes all the time, twelve looks in a row are enough.
sweep() {
  local f found last now quiet=0
  for _ in {1..500}; do
    found=()
    { read -r _ _ _ _ last; } 2>/dev/null </proc/loadavg
    halt_youngest "$1"
    for f in $(grep -lsF -- "$1" /proc/[0-9]*/environ 2>/dev/null); do
      f=${f%/environ}
      found+=("${f##*/}")
    done
    { read -r _ _ _ _ now; } 2>/dev/null </proc/loadavg
    if [ ${#found[@]} -eq 0 ]; then
      [ $((now - last)) -gt 2 ] && [ $((++quiet)) -lt 12 ] || return 0
      continue
    fi
    quiet=0
    kill -STOP "${found[@]}" 2>/dev/null
    kill -KILL "${found[@]}" 2>/dev/null
    pause 0.02
  done
  return 1
}

# halt_youngest MARK stops those of the last eight processes that have the mark, and adds them to found. A chain in which each
# process starts the next one and ends is met only there.
halt_youngest() {
  local n value
  for ((n = last; n > 0 && n > last - 8; n--)); do
    while IFS= read -r -d '' value; do
      [[ $value != *"$1"* ]] || { kill -STOP "$n" && found+=("$n"); break; }
    done <"/proc/$n/environ"
  done 2>/dev/null
}

