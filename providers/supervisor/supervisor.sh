# One background job, watched over from inside of its box. doc.go describes the processes and files.
#
# Bash and coreutils and grep and /proc are all that it needs. The first line of standard input
# names what to do, unless the first argument does; what follows depends on it. All of it is parsed
# before anything happens: nobody can change a program that runs.

readonly away=90 old=91 refused=92 full=93 # exit codes: what is missing is named on stderr

fail() {
  printf '%s\n' "$2" >&2
  exit "$1"
}

# now sets now: hundredths of seconds on a clock that nobody sets.
now() {
  local up _
  read -r up _ </proc/uptime
  now=$((10#${up/./}))
}

# process PID sets state, group, session and start; it fails when there is no such process.
process() {
  local line
  state='' group='' session='' start=''
  { read -r line </proc/"$1"/stat; } 2>/dev/null || [ -n "$line" ] || return 1
  set -- ${line##*) }
  state=$1 group=$3 session=$4 start=${20}
}

# identify PID sets note, by which a process is told from another that has its number later.
identify() {
  local boot
  note=''
  process "$1" || return
  read -r boot </proc/sys/kernel/random/boot_id
  note="$1 $start $boot"
}

# stamp PID FILE writes the note of a process to a file.
stamp() { identify "$1" && printf '%s\n' "$note" >"$2.new" && mv -f "$2.new" "$2"; }

# noted FILE sets note.
noted() {
  note=''
  { read -r note <"$1"; } 2>/dev/null
}

# lives NOTE sets pid when the process lives.
lives() {
  local since booted boot
  set -- $1
  pid=$1 since=$2 booted=$3
  read -r boot </proc/sys/kernel/random/boot_id
  [[ $pid =~ ^[1-9][0-9]*$ && $booted == "$boot" ]] && process "$pid" && [[ $start == "$since" && $state != [ZX] ]]
}

alive() { noted "$dir/$1" && lives "$note"; }

# pause HUNDREDTHS
pause() {
  local s
  printf -v s '%d.%02d' $(($1 / 100)) $(($1 % 100))
  sleep "$s"
}

# ---- all that a job has started

# find_left sets left: the processes with the job's mark, and those in the session or group of its
# leader when that is given. A number is not reused while a session or group has it.
find_left() {
  local file
  left=()
  [ -n "$instance" ] || return 0
  [ -n "$marked" ] || { printf 'x\0mark' | grep -qF mark && marked=grep_marked || marked=read_marked; }
  for file in $("$marked"); do
    file=${file%/environ}
    process "${file##*/}" && [[ $state != [ZX] ]] && left+=("${file##*/}")
  done
  [ -n "$1" ] || return 0
  for file in /proc/[0-9]*; do
    process "${file##*/}" && [[ $state != [ZX] && ( $session == "$1" || $group == "$1" ) && " ${left[*]} " != *" ${file##*/} "* ]] &&
      left+=("${file##*/}")
  done
  return 0
}

# grep_marked prints the files of the environments that have the job's mark.
grep_marked() { grep -lsF -- "SANDJET_JOB=$instance" /proc/[0-9]*/environ 2>/dev/null; }

# read_marked is grep_marked where grep reads no further than to the first NUL, as busybox's.
read_marked() {
  local file variable
  for file in /proc/[0-9]*/environ; do
    while IFS= read -r -d '' variable; do
      [ "$variable" != "SANDJET_JOB=$instance" ] || { printf '%s\n' "$file" && break; }
    done <"$file"
  done 2>/dev/null
}

# await_left LEADER UNTIL returns when nothing is left, or fails when the time has come.
await_left() {
  while find_left "$1" && [ ${#left[@]} -gt 0 ]; do
    now
    [ "$now" -lt "$2" ] || return 1
    pause 5
  done
}

# kill_left LEADER. Stopped first, they cannot start more while they are being killed. A look that finds nothing counts when
# no process was started meanwhile but the two of the look: such a one may be of the job too, and its parent have ended before
# it was looked at. Beside others that start processes all the time, twelve looks in a row are enough.
kill_left() {
  local i last now quiet=0 halted
  for ((i = 0; i < 200; i++)); do
    { read -r _ _ _ _ last; } 2>/dev/null </proc/loadavg
    halted=()
    halt_youngest
    find_left "$1"
    left+=("${halted[@]}")
    { read -r _ _ _ _ now; } 2>/dev/null </proc/loadavg
    if [ ${#left[@]} -eq 0 ]; then
      [ $((now - last)) -gt 2 ] && [ $((++quiet)) -lt 12 ] || return 0
      continue
    fi
    quiet=0
    kill -STOP "${left[@]}" 2>/dev/null
    kill -KILL "${left[@]}" 2>/dev/null
    pause 2
  done
}

# halt_youngest stops those of the last eight processes that have the job's mark, and adds them to halted. A chain in which
# each process starts the next one and ends is met only there.
halt_youngest() {
  local n variable
  [ -n "$instance" ] || return 0
  for ((n = last; n > 0 && n > last - 8; n--)); do
    while IFS= read -r -d '' variable; do
      [ "$variable" != "SANDJET_JOB=$instance" ] || { kill -STOP "$n" && halted+=("$n"); break; }
    done <"/proc/$n/environ"
  done 2>/dev/null
}

# signal_job NAME sends it to the leader's group, when that is still the one that was started.
signal_job() { alive leader && kill -s "$1" -- "-$pid" 2>/dev/null; }

# ---- what it prints

# keep_log copies standard input into segments and drops the oldest ones.
keep_log() {
  local at=0 size=0 new segment=$((keep / 8)) first=() file count least
  least=$((segment / 131072)) # reads of at most 64 KiB: a segment grows beyond its size by half at most
  least=$((least > 64 ? 64 : least < 1 ? 1 : least))
  trap : HUP INT QUIT TERM USR1 USR2
  cd /
  while :; do
    while [ ${#first[@]} -gt 0 ] && [ $((at - first[0] + segment * 3 / 2)) -gt "$keep" ]; do drop_first; done
    first+=("$at")
    printf -v file '%s/log.%015d' "$dir" "$at"
    size=0
    while [ "$size" -lt "$segment" ]; do
      count=$(((segment - size) / 65536)) # reads, of which each may be short
      [ "$count" -ge "$least" ] || count=$least
      if { dd bs=65536 count="$count" >>"$file"; } 2>/dev/null; then
        new=$(wc -c <"$file")
        [ "$new" -gt "$size" ] || return 0
      elif [ -d "$dir" ]; then
        new=$(wc -c <"$file") # dd was killed, or the disk is full: what it had in hand is lost
        [ ${#first[@]} -lt 2 ] || drop_first
        pause 10
      else
        cat >/dev/null # its directory is gone: the job goes on
        return
      fi
      size=$new
    done
    at=$((at + size))
  done
}

# drop_first removes the oldest of the segments named in first.
drop_first() {
  local file
  printf -v file '%s/log.%015d' "$dir" "${first[0]}"
  rm -f "$file"
  first=("${first[@]:1}")
}

# measure_log sets first and total: where the kept output begins and ends.
measure_log() {
  local file last='' n
  first=0 total=0
  for file in "$dir"/log.*; do
    [ -e "$file" ] || continue
    [ -n "$last" ] || first=$((10#${file##*.}))
    last=$file
  done
  [ -n "$last" ] || return 0
  n=$(wc -c <"$last") && total=$((10#${last##*.} + n))
}

# print_log OFFSET COUNT prints what is kept from there.
print_log() {
  local from=$1 n=$2 file at size take
  for file in "$dir"/log.*; do
    [ "$n" -gt 0 ] || break
    at=$((10#${file##*.}))
    size=$(wc -c <"$file") || return
    [ "$from" -ge "$at" ] && [ "$from" -lt $((at + size)) ] || continue
    take=$((at + size - from))
    [ "$take" -le "$n" ] || take=$n
    tail -c "+$((from - at + 1))" "$file" | head -c "$take"
    from=$((from + take)) n=$((n - take))
  done
}

# ---- the end

# record writes down how it ended. The first to do so is right.
record() {
  local finished=$EPOCHREALTIME
  [ -n "$finished" ] || printf -v finished '%(%s)T' -1
  printf '%s %s\n' code "$code" stopped "$stopped" timed_out "$timed_out" lost "$lost" reason "$reason" \
    children_left "$children" finished "$finished" >"$dir/exit.$$"
  ln "$dir/exit.$$" "$dir/exit" 2>/dev/null || mv -n "$dir/exit.$$" "$dir/exit" 2>/dev/null
  rm -f "$dir/exit.$$"
}

# escape prints standard input as the inside of a JSON string, bytes that are no UTF-8 replaced.
escape() {
  local LC_ALL=C b c n=0 need=0 low high text='' sequence='' table=() bad=$'\xef\xbf\xbd'
  for ((b = 0; b < 256; b++)); do
    if ((b < 32 || b == 127)); then
      printf -v table[b] '\\u%04x' "$b"
    else
      printf -v c '\\x%02x' "$b"
      printf -v table[b] "$c"
    fi
  done
  table[9]='\t' table[10]='\n' table[13]='\r' table[34]='\"' table[92]='\\'
  for b in $(od -An -v -tu1); do
    if ((need > 0)); then
      if ((b >= low && b <= high)); then
        sequence+=${table[b]} low=128 high=191
        ((--need > 0)) || text+=$sequence
        continue
      fi
      text+=$bad need=0
    fi
    low=128 high=191 sequence=${table[b]}
    if ((b < 128)); then
      text+=$sequence
    elif ((b >= 194 && b <= 223)); then
      need=1
    elif ((b >= 224 && b <= 239)); then
      need=2
      ((b != 224)) || low=160
      ((b != 237)) || high=159
    elif ((b >= 240 && b <= 244)); then
      need=3
      ((b != 240)) || low=144
      ((b != 244)) || high=143
    else
      text+=$bad
    fi
    if ((++n % 512 == 0)); then
      printf '%s' "$text"
      text=''
    fi
  done
  ((need == 0)) || text+=$bad
  printf '%s' "$text"
}

# describe prints the body of the callback.
describe() {
  local from
  measure_log
  from=$((total > tail_bytes ? total - tail_bytes : 0))
  [ "$from" -ge "$first" ] || from=$first
  if [ "$lost" = 0 ] && [ "$code" = 0 ]; then printf '{"status":"completed"'; else printf '{"status":"failed"'; fi
  printf ',"response":{'
  [ "$lost" = 1 ] || printf '"exitCode":%d,' "$code"
  printf '"logBytes":%d,"childrenLeft":%d' "$total" "$children"
  [ "$stopped" = 0 ] || printf ',"stopped":true'
  [ "$timed_out" = 0 ] || printf ',"timedOut":true'
  printf ',"logs":"'
  print_log "$from" "$tail_bytes" | escape
  printf '"}'
  [ -z "$reason" ] || printf ',"error":"%s"' "$reason"
  printf '}'
}

# post sends the body and sets status to the answer's. The token goes to the client on standard
# input or in a descriptor: not in arguments, not in the environment, not in a file with a name.
post() {
  local body=$dir/callback host port path
  status=
  if command -v curl >/dev/null; then
    status=$(printf 'url = "%s"\nheader = "x-job-token: %s"\n' "$url" "$token" |
      curl -q -s -o /dev/null -w '%{http_code}' --connect-timeout 10 --max-time 30 -X POST -H 'content-type: application/json' \
        -H 'expect:' --data-binary "@$body" -K - 2>/dev/null)
  elif command -v wget >/dev/null && wget --version 2>/dev/null | grep -q '^GNU Wget'; then
    exec 3<>"$dir/wgetrc"
    rm -f "$dir/wgetrc" # it reads settings from regular files only: here is one without a name
    printf 'header = x-job-token: %s\n' "$token" >&3
    status=$(wget -nv -S -O /dev/null -t 1 -T 30 --max-redirect=0 --header='content-type: application/json' --post-file="$body" \
      --config=/dev/fd/3 "$url" 2>&1 | grep -m 1 -o '^ *HTTP/[0-9.]* [0-9]*')
    status=${status##* }
    exec 3>&-
  elif command -v python3 >/dev/null; then
    status=$(printf '%s\n%s\n' "$url" "$token" | timeout 60 python3 -c '
import sys, urllib.error, urllib.request
url, token = sys.stdin.read().split()
request = urllib.request.Request(url, open(sys.argv[1], "rb").read(), {"content-type": "application/json", "x-job-token": token})
try:
    print(urllib.request.urlopen(request, timeout=30).status)
except urllib.error.HTTPError as e:
    print(e.code)
' "$body" 2>/dev/null)
  elif [[ $url =~ ^http://([^/:]+)(:([0-9]+))?(/.*)?$ ]]; then
    host=${BASH_REMATCH[1]} port=${BASH_REMATCH[3]:-80} path=${BASH_REMATCH[4]:-/}
    status=$(
      exec 3<>"/dev/tcp/$host/$port" || exit
      {
        printf 'POST %s HTTP/1.0\r\nhost: %s:%s\r\ncontent-type: application/json\r\nx-job-token: %s\r\ncontent-length: %d\r\n\r\n' \
          "$path" "$host" "$port" "$token" "$(wc -c <"$body")"
        cat "$body"
      } >&3
      read -r -t 30 -u 3 _ code _ && printf '%s' "$code"
    ) 2>/dev/null
  fi
}

# report tells the end where it was asked to, until somebody has heard it.
report() {
  local delay=$retry_first until status
  [ -n "$url" ] || return 0
  describe >"$dir/callback"
  now
  until=$((now + retry_for))
  while :; do
    post
    printf '%s\n' "${status:-none}" >"$dir/reported"
    case $status in
    2?? | 404 | 409) break ;;
    esac
    now
    [ "$now" -lt "$until" ] || break
    pause $((delay / 2 + (RANDOM * 32768 + RANDOM) % (delay / 2 + 1)))
    delay=$((delay * 2 > retry_most ? retry_most : delay * 2))
  done
  rm -f "$dir/callback"
}

# ---- the three processes

# load reads what the job was started with.
load() {
  read -r lifetime grace tail_bytes retry_first retry_most retry_for keep mask begun detach <"$dir/params" &&
    read -r instance <"$dir/instance"
}

# guard watches over the job. It is neither the job's parent nor of its session.
guard() {
  local url token minder leader='' logger feeder='' line part='' word rest s deadline kill_at='' children=0 orphan='' beat=0
  read -r url
  read -r token
  exec </dev/null
  trap : HUP INT QUIT TERM USR1 USR2
  dir=${0%/*}
  load || exit
  stamp $$ "$dir/guardian" || exit
  code='' stopped=0 timed_out=0 lost=0 reason=''
  set -m # what is started in the background gets a group of its own, and no signals ignored
  exec 5<>"$dir/output" 4<"$dir/output" # opening a pipe for both never blocks
  keep_log <&4 4<&- 5>&- &
  logger=$!
  exec 6>"$dir/output" 8<>"$dir/control" 7<>"$dir/stdin" 9>"$dir/stdin"
  mind 4<&- 5>&- 7>&- 9>&- &
  identify $!
  minder=$note
  if [ -s "$dir/input" ]; then
    feed 4<&- 5>&- 6>&- 7>&- 8>&- &
    feeder=$!
  else
    : >"$dir/fed"
  fi
  set +m
  exec 4<&- 5>&- 6>&-
  cd /
  now
  deadline=$((begun + lifetime))
  while :; do
    now
    if [ "$now" -ge "$beat" ]; then
      printf '%s\n' "$now" >"$dir/heartbeat"
      beat=$((now + 300))
    fi
    printf -v s '%d.%02d' $((deadline > now && deadline - now < 100 ? 0 : 1)) $((deadline > now && deadline - now < 100 ? deadline - now : 0))
    [ -z "$kill_at" ] || s=0.1
    line=
    if IFS= read -r -t "$s" -u 8 line; then
      line=$part$line part=''
      word=${line%% *} rest=${line#* }
      case $word in
      started)
        know_leader
        exec 7>&- # from here on the job alone reads
        [ -z "$kill_at" ] || ask_end # its time was over, or it was stopped, before there was anyone to ask
        ;;
      eof) exec 9>&- ;;
      ended)
        code=$rest
        break
        ;;
      stop)
        if [ -z "$kill_at" ]; then
          stopped=1
          kill_at=$((now + rest))
          ask_end
        fi
        ;;
      esac
      continue
    fi
    part+=$line # its time may be over in the middle of a line
    now
    if [ -z "$kill_at" ] && [ "$now" -ge "$deadline" ]; then
      timed_out=1
      kill_at=$((now + grace))
      ask_end
    fi
    if [ -n "$kill_at" ] && [ "$now" -ge "$kill_at" ]; then
      know_leader
      kill_left "${leader%% *}"
    fi
    if ! lives "$minder"; then
      [ -n "$orphan" ] || { orphan=1 && continue; } # its last word may be under way
      lives "$leader" && continue
      lost=1 code=0
      reason='the process that waited for the job was killed: how it ended is unknown'
      break
    fi
  done
  [ -z "$feeder" ] || kill -KILL -- "-$feeder" 2>/dev/null
  exec 7>&- 9>&-
  know_leader
  leader=${leader%% *}
  if [ -n "$kill_at" ]; then
    find_left "$leader"
    [ ${#left[@]} -eq 0 ] || kill -TERM "${left[@]}" 2>/dev/null
    await_left "$leader" "$kill_at"
  else
    now
    if ! await_left "$leader" $((now + 100)); then
      children=${#left[@]}
      kill -TERM "${left[@]}" 2>/dev/null
      now
      await_left "$leader" $((now + (grace < 200 ? grace : 200)))
    fi
  fi
  kill_left "$leader"
  await_logger
  [ -d "$dir" ] || { mkdir -p -m 700 "$dir" && printf '%s\n' "$instance" >"$dir/instance"; } # the job has removed it
  record
  rm -f "$dir/control" "$dir/stdin" "$dir/output" "$dir/script" "$dir/input" "$dir/supervisor" "$dir/heartbeat" "$dir/code"
  report
}

# know_leader sets leader, as soon as there is one.
know_leader() { [ -n "$leader" ] || { noted "$dir/leader" && leader=$note; }; }

# ask_end asks the job to end. One that stands still has to go on in order to hear it.
ask_end() {
  know_leader
  lives "$leader" || return
  kill -TERM -- "-$pid"
  kill -CONT -- "-$pid"
}

# await_logger returns when the log is complete: at once, unless somebody who escaped holds it open.
await_logger() {
  local i
  for ((i = 0; i < 500; i++)); do
    process "$logger" && [[ $state != [ZX] ]] || return 0
    pause 2
  done
  kill -KILL -- "-$logger" 2>/dev/null
}

# mind waits for the job. It is what the job sees as its parent.
mind() {
  trap : HUP INT QUIT TERM USR1 USR2
  stamp "$BASHPID" "$dir/minder"
  if [ "$detach" = setsid ]; then
    setsid bash "$dir/supervisor" lead <"$dir/stdin" >&6 2>&6 6>&-
  else
    set -m
    bash "$dir/supervisor" lead <"$dir/stdin" >&6 2>&6 6>&-
  fi
  code=$?
  exec 6>&-
  if alive leader; then # stopped, where job control sees that
    while alive leader; do pause 50; done
    exit
  fi
  printf '%s\n' "$code" >"$dir/code.new" && mv -f "$dir/code.new" "$dir/code"
  printf 'ended %s\n' "$code" >&8
}

# feed writes what the job was given to read.
feed() {
  cat "$dir/input" >&9
  : >"$dir/fed"
}

# lead becomes the job: with the variables of the run that started it, and the mark.
lead() {
  local variable variables=() script
  dir=${0%/*}
  load || exit
  stamp $$ "$dir/leader"
  printf 'started\n' >&8
  exec 8>&-
  while IFS= read -r -d '' variable; do
    case $variable in
    _=* | SHLVL=* | SANDJET_JOB=*) ;;
    *) variables+=("$variable") ;;
    esac
  done <"$dir/environ"
  rm -f "$dir/environ"
  umask "$mask"
  if [ "$(wc -c <"$dir/script")" -le 65536 ]; then
    IFS= read -r -d '' script <"$dir/script"
    exec env -i -- "${variables[@]}" "SANDJET_JOB=$instance" bash -c -- "$script"
  fi
  exec env -i -- "${variables[@]}" "SANDJET_JOB=$instance" bash "$dir/script"
}

# ---- what is asked in runs

# settle writes the end down where whoever should have done so is gone.
settle() {
  code='' stopped=0 timed_out=0 lost=0 reason='' children=0
  [ -e "$dir/exit" ] && return
  alive guardian && return
  if [ ! -e "$dir/guardian" ]; then # it may be coming
    printf -v now '%(%s)T' -1
    [ "$(stat -c %Y "$dir")" -lt $((now - 30)) ] || return
  fi
  { load; } 2>/dev/null
  if alive leader; then
    now
    [ "$now" -ge $((begun + lifetime)) ] || return
    timed_out=1
    end_alone "$grace"
  fi
  conclude
}

# end_alone ends a job that nobody guards.
end_alone() {
  signal_job TERM
  signal_job CONT
  now
  await_left '' $((now + $1))
}

# conclude finds out how a job ended that nobody guards, and records it.
conclude() {
  local i
  kill_left ''
  for ((i = 0; i < 500; i++)); do
    [ -e "$dir/code" ] || alive minder || break
    { read -r code <"$dir/code"; } 2>/dev/null && break
    pause 2
  done
  [ -n "$code" ] || { read -r code <"$dir/code"; } 2>/dev/null # its minder wrote it and ended between two looks
  [ -e "$dir/exit" ] && return # there was a guardian all the same, and it has just ended
  if [ -z "$code" ]; then
    lost=1
    reason='its supervisor was killed, or the box was started anew: how it ended is unknown'
    code=0
  fi
  record
}

# locate sets dir from where jobs are kept and the job's id.
locate() {
  local root id
  read -r root
  read -r id
  if [ -z "$root" ]; then
    root=${TMPDIR:-/tmp}/.sandjet-jobs
    [ -d "$HOME" ] && [ -w "$HOME" ] && root=$HOME/.sandjet-jobs
  fi
  dir=$root/$id
  jobs=$root
}

# known ends the run when no such job was started here, or another start is meant.
known() {
  local meant
  locate
  [ -d "$dir" ] || fail "$away" 'no such job'
  { read -r instance <"$dir/instance"; } 2>/dev/null
  read -r meant
  [ -z "$meant" ] || [ "$meant" = "$instance" ] || fail "$away" 'the job was started anew'
  settle
}

start() {
  local rest tool script_bytes bound
  mask=$(umask)
  umask 077
  locate
  unset url token
  read -r keep rest # limits and times
  read -r url
  read -r token
  read -r script_bytes
  [ "${BASH_VERSINFO[0]}${BASH_VERSINFO[1]}" -ge 42 ] || fail "$old" "bash $BASH_VERSION is too old: 4.2 is needed"
  for tool in base64 cat dd df env grep head ln mkdir mkfifo mv od rm sleep stat tail timeout wc; do
    command -v "$tool" >/dev/null || fail "$old" "$tool is missing"
  done
  [ -r /proc/self/stat ] && [ -r /proc/uptime ] && [ -r /proc/sys/kernel/random/boot_id ] || fail "$old" '/proc is missing'
  mkdir -m 700 -- "$jobs" 2>/dev/null
  [ -d "$jobs" ] && [ ! -L "$jobs" ] && [ -O "$jobs" ] && [ -w "$jobs" ] || fail "$refused" "$jobs is not a directory of ours"
  if mkdir -m 700 -- "$dir" 2>/dev/null; then
    cat >"$dir/payload" && head -c "$script_bytes" "$dir/payload" >"$dir/script" &&
      tail -c "+$((script_bytes + 1))" "$dir/payload" >"$dir/input" && rm "$dir/payload" &&
      cat "/proc/$$/environ" >"$dir/environ" && mkfifo -m 600 "$dir/control" "$dir/stdin" "$dir/output" &&
      printf '%s\n' "$BASH_EXECUTION_STRING" >"$dir/supervisor" ||
      { rm -rf "$dir" && fail "$full" "the files of the job cannot be written to $jobs"; }
    read -r instance </proc/sys/kernel/random/uuid
    printf '%s\n' "${instance//-/}" >"$dir/instance"
    detach=setsid
    command -v setsid >/dev/null || detach=
    set -- $(df -Pk "$dir" | tail -n 1)
    bound=$(($4 * 1024 / 3)) # of what is free: a job must not fill a small disk
    now
    printf '%s\n' "$rest $((bound > 0 && bound < keep ? bound : keep)) $mask $now $detach" >"$dir/params.new"
    mv "$dir/params.new" "$dir/params"
    set -m # else the job would ignore INT and QUIT
    printf '%s\n' "$url" "$token" | env -i ${PATH+"PATH=$PATH"} ${HOME+"HOME=$HOME"} LANG=C LC_ALL=C \
      ${https_proxy+"https_proxy=$https_proxy"} ${http_proxy+"http_proxy=$http_proxy"} ${no_proxy+"no_proxy=$no_proxy"} \
      $detach bash "$dir/supervisor" guard >/dev/null 2>&1 &
    set +m
  elif [ ! -d "$dir" ]; then
    fail "$full" "$dir cannot be made"
  fi
  await_start
  read -r instance <"$dir/instance"
  printf 'instance %s\n' "$instance"
}

# await_start returns when the job runs or has ended.
await_start() {
  local until
  now
  until=$((now + 2000))
  while [ ! -e "$dir/leader" ] && [ ! -e "$dir/exit" ]; do
    now
    [ "$now" -lt "$until" ] || fail 1 'the job has not begun in 20 s'
    pause 2
  done
}

status() {
  known
  if [ -e "$dir/exit" ]; then
    cat "$dir/exit"
  else
    printf 'running 1\n'
  fi
  measure_log
  printf '%s %s\n' instance "$instance" first "$first" total "$total"
  [ -e "$dir/exit" ] || return 0
  read -r tail_bytes
  printf '\n'
  [ $((total - tail_bytes)) -le "$first" ] || first=$((total - tail_bytes))
  print_log "$first" "$tail_bytes" | base64
}

logs() {
  local offset limit ended=0 again page size
  known
  read -r offset
  read -r limit
  for again in 1 2 3; do
    [ ! -e "$dir/exit" ] || ended=1
    measure_log
    [ "$offset" -ge 0 ] || offset=$((total > limit ? total - limit : 0))
    [ "$offset" -ge "$first" ] || offset=$first
    [ "$offset" -le "$total" ] || offset=$total
    page=$(print_log "$offset" "$limit" 2>/dev/null | base64)
    size=$total
    measure_log
    [ "$first" -gt "$offset" ] || break # else it was dropped just now, or while it was read
  done
  printf '%s %s\n' offset "$offset" total "$size" ended "$ended"
  printf '\n%s\n' "$page"
}

stop() {
  local grace_now until
  known
  read -r grace_now
  [ ! -e "$dir/exit" ] || return 0
  if alive guardian; then
    exec 8<>"$dir/control"
    printf 'stop %d\n' "$grace_now" >&8
    exec 8>&-
    now
    until=$((now + grace_now + 2000))
    while [ ! -e "$dir/exit" ]; do
      alive guardian || break
      now
      [ "$now" -lt "$until" ] || fail 1 'the job has not ended'
      pause 5
    done
    [ ! -e "$dir/exit" ] || return 0
  fi
  stopped=1
  load
  end_alone "$grace_now"
  conclude
}

send() {
  local name
  known
  read -r name
  [ ! -e "$dir/exit" ] && signal_job "$name" || fail "$refused" 'the job has ended'
}

write() {
  local eof budget bytes until i sent=0 chunk s problem='' file
  known
  file=$dir/write.$$
  read -r eof
  read -r budget
  read -r bytes
  [ ! -e "$dir/exit" ] && alive leader || fail "$refused" 'the job has ended'
  [ ! -e "$dir/eof" ] || fail "$refused" 'the input of the job is closed'
  now
  until=$((now + budget))
  while [ ! -e "$dir/fed" ] && [ -z "$problem" ]; do
    now
    [ "$now" -lt "$until" ] || problem=timeout
    pause 2
  done
  umask 077
  cat >"$file"
  # Opening for reading too never blocks; once that end is closed, only the job is there to read.
  exec 7<>"$dir/stdin" 9>"$dir/stdin" 7>&-
  for ((i = 0; sent < bytes && ${#problem} == 0; i++)); do
    chunk=$((bytes - sent > 4096 ? 4096 : bytes - sent)) # a pipe takes as much all at once or not at all
    now
    printf -v s '%d.%02d' $(((until > now ? until - now : 1) / 100)) $(((until > now ? until - now : 1) % 100))
    timeout "$s" dd if="$file" bs=4096 skip="$i" count=1 2>/dev/null >&9
    case $? in
    0) sent=$((sent + chunk)) ;;
    124 | 137 | 143) problem=timeout ;; # by coreutils, or by busybox, whose command takes the signal itself
    *) problem=closed ;;
    esac
  done
  rm -f "$file"
  if [ "$eof" = 1 ] && [ -z "$problem" ]; then
    : >"$dir/eof"
    exec 8<>"$dir/control"
    printf 'eof\n' >&8
  fi
  printf '%s %s\n' written "$sent" problem "${problem:-none}"
}

main() {
  local verb=$1 marked='' # how marks are found, once that is known
  set +a
  unset BASH_ENV
  LC_ALL=C
  IFS=$' \t\n'
  [ -n "$verb" ] || read -r verb
  case $verb in
  guard | lead | start | status | logs | stop | send | write) "$verb" ;;
  *) fail 1 "unknown: $verb" ;;
  esac
}

main "$@"
exit 0
