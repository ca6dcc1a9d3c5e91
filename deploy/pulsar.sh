#!/usr/bin/env bash
# A real Apache Pulsar for one machine: broker, one bookie and metadata in one Java process, from
# Maven artifacts; no container and no distribution archive. For trying things and for tests.
#
#   deploy/pulsar.sh install | start | stop | kill | restart | status | wipe
#
# kill is a crash (SIGKILL); wipe deletes the messages of a stopped instance.
#
# Environment (defaults):
#   PULSAR_DATA_DIR   ~/.cache/agentfleet/pulsar: one instance; another folder is another instance
#   PULSAR_LIB_DIR    ~/.cache/agentfleet/pulsar-lib: the jars, shared by all instances (234 MB)
#   PULSAR_PORT 6650, PULSAR_HTTP_PORT 8080: on loopback; 0 takes a free one and keeps it
#   PULSAR_HEAP 512m, PULSAR_DIRECT 512m: memory of the Java process
#   PULSAR_EXTRA_CONF: a file of further settings (authentication, TLS), which win
#   PULSAR_ADMIN_TOKEN: for the readiness check, if PULSAR_EXTRA_CONF asks for one
#   PULSAR_JOURNAL_SYNC true: false is faster, and loses messages on power loss only
#   PULSAR_START_TIMEOUT 120: seconds until a start is given up
#   PULSAR_LOG_LEVEL warn
#   PULSAR_JAVA: a java of version 17 or newer (JAVA_HOME's, else the newest found)
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/pulsar" && pwd)
NAME=pulsar.sh
# shellcheck source=deploy/server.sh
source "$HERE/../server.sh"
DATA_DIR=${PULSAR_DATA_DIR:-$CACHE/pulsar}
LIB_DIR=${PULSAR_LIB_DIR:-$CACHE/pulsar-lib}
START_TIMEOUT=${PULSAR_START_TIMEOUT:-120}
PID_FILE=$DATA_DIR/pid
CONF=$DATA_DIR/conf/standalone.conf
LOG=$DATA_DIR/logs/pulsar.log
MATCH="PulsarStandaloneStarter --config $CONF"

# An instance keeps its ports over restarts.
PORT=${PULSAR_PORT:-6650}
HTTP_PORT=${PULSAR_HTTP_PORT:-8080}
choose_ports() {
  if [[ -s $DATA_DIR/ports ]] && { [[ -z ${PULSAR_PORT:-} ]] || [[ $PORT == 0 ]]; }; then
    read -r PORT HTTP_PORT <"$DATA_DIR/ports"
  fi
}

admin() {
  local auth=()
  [[ -z ${PULSAR_ADMIN_TOKEN:-} ]] || auth=(-H "Authorization: Bearer $PULSAR_ADMIN_TOKEN")
  curl -fsS -m 5 "${auth[@]}" "$@" 2>/dev/null
}

healthy() { [[ $(admin "http://127.0.0.1:$HTTP_PORT/admin/v2/brokers/health") == ok ]]; }

# The health check uses an old topic; a new one needs a new ledger, hence a live bookie.
can_create() {
  local topic
  topic=http://127.0.0.1:$HTTP_PORT/admin/v2/persistent/public/default/ready-$(date +%s%N)
  admin -o /dev/null -X PUT "$topic" || return 1
  admin -o /dev/null -X DELETE "$topic?force=true" || true
}

cmd_install() {
  local want settings=()
  want=$(sha256sum "$HERE/pom.xml" | cut -d' ' -f1)
  mkdir -p "$LIB_DIR"
  # One at a time: several instances may start at once.
  exec 9>"$LIB_DIR/.lock"
  flock 9
  if [[ -f $LIB_DIR/.installed && $(<"$LIB_DIR/.installed") == "$want" ]]; then
    exec 9>&-
    return
  fi
  command -v mvn >/dev/null || die "mvn not found (on Debian: apt-get install maven)"
  echo "Fetching Apache Pulsar (234 MB, once) ..."
  find "$LIB_DIR" -maxdepth 1 -name '*.jar' -delete
  # Own settings of the user win: they may name a mirror.
  [[ -f $HOME/.m2/settings.xml ]] || settings=(-s "$HERE/settings.xml")
  mvn -B -q "${settings[@]}" -f "$HERE/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$LIB_DIR"
  ls "$LIB_DIR"/pulsar-broker-[0-9]*.jar >/dev/null || die "the broker is missing in $LIB_DIR"
  echo "$want" >"$LIB_DIR/.installed"
  exec 9>&-
}

cmd_start() {
  local java pid begin
  cmd_install
  choose_ports
  if pid=$(running_pid); then
    healthy && { echo "already running: pid $pid"; cmd_status; return; }
  else
    java=$(find_java "${PULSAR_JAVA:-}")
    mkdir -p "$DATA_DIR"/{conf,logs,data}
    [[ $PORT != 0 ]] || PORT=$(free_port)
    [[ $HTTP_PORT != 0 ]] || HTTP_PORT=$(free_port)
    echo "$PORT $HTTP_PORT" >"$DATA_DIR/ports"
    sed -e "s|@BROKER_PORT@|$PORT|" -e "s|@HTTP_PORT@|$HTTP_PORT|" \
      -e "s|@JOURNAL_SYNC@|${PULSAR_JOURNAL_SYNC:-true}|" "$HERE/standalone.conf" >"$CONF"
    [[ -z ${PULSAR_EXTRA_CONF:-} ]] || cat "$PULSAR_EXTRA_CONF" >>"$CONF"
    [[ ! -f $LOG ]] || mv "$LOG" "$LOG.1"
    if [[ -d $DATA_DIR/data/metadata && ! -f $DATA_DIR/clean ]]; then
      "$java" --add-opens java.base/java.nio=ALL-UNNAMED -Dpulsar.log.level=error \
        -Dlog4j2.configurationFile="$HERE/log4j2.xml" -cp "$LIB_DIR/*" \
        "$HERE/PurgeStale.java" "$DATA_DIR/data/metadata" >"$DATA_DIR/logs/purge.log" 2>&1 ||
        echo "note: the metadata was not purged, see $DATA_DIR/logs/purge.log" >&2
    fi
    rm -f "$DATA_DIR/clean"
    setsid "$java" \
      -Xms128m "-Xmx${PULSAR_HEAP:-512m}" "-XX:MaxDirectMemorySize=${PULSAR_DIRECT:-512m}" \
      -XX:+UseG1GC -XX:MaxGCPauseMillis=10 -XX:+ParallelRefProcEnabled \
      -XX:+ExitOnOutOfMemoryError -XX:+PerfDisableSharedMem \
      --add-opens java.base/java.nio=ALL-UNNAMED \
      --add-opens java.base/java.util.zip=ALL-UNNAMED \
      --add-opens java.base/jdk.internal.misc=ALL-UNNAMED \
      --add-opens java.base/jdk.internal.platform=ALL-UNNAMED \
      --add-opens java.base/sun.net=ALL-UNNAMED \
      --add-opens java.management/sun.management=ALL-UNNAMED \
      --add-opens jdk.management/com.sun.management.internal=ALL-UNNAMED \
      -Dio.netty.tryReflectionSetAccessible=true \
      -Dio.netty.recycler.maxCapacityPerThread=4096 \
      -Dpulsar.allocator.exit_on_oom=true \
      -Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver \
      -Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver \
      -Dlog4j2.configurationFile="$HERE/log4j2.xml" \
      -Dpulsar.log.level="${PULSAR_LOG_LEVEL:-warn}" \
      -Djava.net.preferIPv4Stack=true \
      -cp "$LIB_DIR/*" org.apache.pulsar.PulsarStandaloneStarter \
      --config "$CONF" --no-functions-worker --no-stream-storage \
      --num-bookies 1 --bookkeeper-port 0 \
      --advertised-address 127.0.0.1 \
      --metadata-dir "$DATA_DIR/data/metadata" --bookkeeper-dir "$DATA_DIR/data/bookkeeper" \
      >"$LOG" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"$PID_FILE"
    disown
    [[ -z ${WITH_PID:-} ]] || end_with "$WITH_PID" "$pid"
  fi
  begin=$SECONDS
  until healthy && can_create; do
    kill -0 "$pid" 2>/dev/null || { tail -40 "$LOG" >&2; die "the broker exited; its log: $LOG"; }
    ((SECONDS - begin < START_TIMEOUT)) || {
      tail -40 "$LOG" >&2
      die "not ready after $START_TIMEOUT seconds; its log: $LOG"
    }
    sleep 0.2
  done
  cmd_status
}

# Waits until the process is gone.
stop_with() {
  local pid
  pid=$(running_pid) || { echo "not running"; rm -f "$PID_FILE"; return; }
  kill "-$1" "$pid"
  for _ in {1..300}; do
    if ! kill -0 "$pid" 2>/dev/null; then
      rm -f "$PID_FILE"
      [[ $1 != TERM ]] || touch "$DATA_DIR/clean"
      echo "stopped: pid $pid"
      return
    fi
    sleep 0.1
  done
  kill -KILL "$pid"
  rm -f "$PID_FILE"
  echo "killed: pid $pid"
}

cmd_status() {
  local pid
  choose_ports
  pid=$(running_pid) || { echo "stopped"; return 3; }
  echo "pid: $pid"
  echo "service_url: pulsar://127.0.0.1:$PORT"
  echo "admin_url: http://127.0.0.1:$HTTP_PORT"
  echo "health: $(healthy && echo ok || echo failing)"
  echo "memory_mib: $(awk '/VmRSS/ {print int($2 / 1024)}' "/proc/$pid/status")"
}

case ${1:-} in
  install) cmd_install && echo "installed: $LIB_DIR ($(find "$LIB_DIR" -name '*.jar' | wc -l) jars)" ;;
  start) cmd_start ;;
  stop) stop_with TERM ;;
  kill) stop_with KILL ;;
  restart) stop_with TERM && cmd_start ;;
  status) cmd_status ;;
  wipe)
    running_pid >/dev/null && die "stop it first"
    rm -rf "$DATA_DIR/data" "$DATA_DIR/clean" "$DATA_DIR/ports"
    ;;
  *) sed -n '2,/^set -/{/^#/p}' "$0"; exit 2 ;;
esac
