# Shared by the scripts that run one server on this machine: sourced, never run.
#
# The script that sources this sets NAME, DATA_DIR (one instance each), MATCH (a text that stands in
# its command line), and defines `cmd_install`, `command_line` (fills the array COMMAND) and `ready`.
# A server listens on loopback, at $PORT; 0 takes a free port, which the instance keeps. With WITH_PID
# set, the server ends when that process does, and its data goes with it: for tests.

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/agentfleet

die() { echo "$NAME: $*" >&2; exit 1; }

free_port() {
  local port
  for _ in {1..100}; do
    port=$((20000 + RANDOM % 12000))
    # A port is free if nobody answers.
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
  die "found no free port"
}

# The process id of our server if it runs; guards against an id that was given to another.
running_pid() {
  local pid
  [[ -s $DATA_DIR/pid ]] || return 1
  pid=$(<"$DATA_DIR/pid")
  kill -0 "$pid" 2>/dev/null || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$MATCH" || return 1
  echo "$pid"
}

# One at a time: several instances may be installed at once.
locked() {
  mkdir -p "$(dirname "$1")"
  exec 9>"$1.lock"
  flock 9
}

# A java of version 17 or newer; the argument, if any, is asked first.
find_java() {
  local found candidate
  for candidate in "${1:-}" "${JAVA_HOME:+$JAVA_HOME/bin/java}" \
    /usr/lib/jvm/*21*/bin/java /usr/lib/jvm/*17*/bin/java "$(command -v java || true)"; do
    [[ -n $candidate && -x $candidate ]] || continue
    found=$("$candidate" -version 2>&1 | sed -nE '1s/.*"([0-9]+).*/\1/p')
    [[ ${found:-0} -ge 17 ]] && { echo "$candidate"; return; }
  done
  die "no java of version 17 or newer (on Debian: apt-get install openjdk-17-jdk-headless)"
}

# Watches from a session of its own, since whoever is watched may be killed with its whole group.
end_with() {
  DATA_DIR=$DATA_DIR setsid bash -c '
    while kill -0 "$0" 2>/dev/null && kill -0 "$1" 2>/dev/null; do sleep 0.5; done
    kill -0 "$0" 2>/dev/null && exit
    kill -KILL "$1" 2>/dev/null
    rm -rf "$DATA_DIR"' "$1" "$2" >/dev/null 2>&1 </dev/null &
}

cmd_start() {
  local pid tries
  cmd_install
  mkdir -p "$DATA_DIR"
  if [[ $PORT == 0 ]]; then
    if [[ -s $DATA_DIR/port ]]; then PORT=$(<"$DATA_DIR/port"); else PORT=$(free_port); fi
  fi
  echo "$PORT" >"$DATA_DIR/port"
  if ! running_pid >/dev/null; then
    command_line
    # A session of its own, so that what stops this script does not stop the server.
    setsid "${COMMAND[@]}" >>"$DATA_DIR/log" 2>&1 </dev/null 9>&- &
    echo $! >"$DATA_DIR/pid"
    [[ -z ${WITH_PID:-} ]] || end_with "$WITH_PID" "$!"
  fi
  for ((tries = 0; tries < 300; tries++)); do
    ready && { cmd_status; return; }
    # Not `running_pid`: at first the process has not become the server yet.
    kill -0 "$(<"$DATA_DIR/pid")" 2>/dev/null || { tail -5 "$DATA_DIR/log" >&2; die "it ended at once; see $DATA_DIR/log"; }
    sleep 0.2
  done
  die "it is not ready after a minute; see $DATA_DIR/log"
}

# Ends the server by a signal, and returns once it is gone.
finish() {
  local pid
  pid=$(running_pid) || { rm -f "$DATA_DIR/pid"; return 0; }
  kill "-$1" "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  rm -f "$DATA_DIR/pid"
}

cmd_status() {
  local pid
  [[ $PORT != 0 || ! -s $DATA_DIR/port ]] || PORT=$(<"$DATA_DIR/port")
  if pid=$(running_pid); then echo "running: pid $pid, $(address)"; else echo "stopped"; return 3; fi
}

cmd_wipe() {
  running_pid >/dev/null && die "stop it first"
  rm -rf "$DATA_DIR"
}

main() {
  case ${1:-} in
    install) cmd_install ;;
    start) cmd_start ;;
    stop) finish TERM ;;
    kill) finish KILL ;;
    restart) finish TERM; cmd_start ;;
    status) cmd_status ;;
    wipe) cmd_wipe ;;
    *) echo "usage: deploy/$NAME install | start | stop | kill | restart | status | wipe" >&2; exit 2 ;;
  esac
}
