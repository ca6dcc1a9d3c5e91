#!/usr/bin/env bash
# A real PostgreSQL server for one machine, Debian's. For trying things and for tests.
#
#   deploy/postgres.sh install | start | stop | kill | restart | status | wipe
#
# kill is a crash (SIGKILL of all its processes): what was committed stays. wipe deletes the data of a
# stopped instance. It has a user and a database `fleet`. The server refuses to be root, so root runs it
# as `nobody`.
#
# Environment (defaults):
#   POSTGRES_DATA_DIR   ~/.cache/agentfleet/postgres: one instance; another folder is another instance
#   POSTGRES_PORT 5433: on loopback; 0 takes a free one and keeps it
#   POSTGRES_PASSWORD fleetsecret: of the user `fleet`
#   POSTGRES_OPTIONS    none: more options of the server, such as `-c fsync=off`
set -euo pipefail

NAME=postgres.sh
HERE=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=deploy/server.sh
source "$HERE/server.sh"
DATA_DIR=${POSTGRES_DATA_DIR:-$CACHE/postgres}
PORT=${POSTGRES_PORT:-5433}
PASSWORD=${POSTGRES_PASSWORD:-fleetsecret}
CLUSTER=$DATA_DIR/cluster
MATCH="postgres -D $CLUSTER"

# Debian keeps the server's programs out of PATH. The newest version counts.
programs() { compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -1; }

cmd_install() { "$HERE/packages.sh" '/usr/lib/postgresql/*/bin/postgres:postgresql'; }

# Runs a program as somebody who is not root, and who may pass the folders above the data all the same.
AS=()
[[ $(id -u) != 0 ]] || AS=(setpriv --reuid nobody --regid nogroup --clear-groups
  --inh-caps=+dac_override --ambient-caps=+dac_override)

create_cluster() {
  local bin=$1
  # In a folder of its own until it is whole.
  rm -rf "$CLUSTER.new"
  mkdir -p "$CLUSTER.new"
  [[ $(id -u) != 0 ]] || chown nobody:nogroup "$CLUSTER.new"
  "${AS[@]}" "$bin/initdb" -D "$CLUSTER.new" -U postgres --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C --no-sync \
    >>"$DATA_DIR/log" 2>&1 || die "initdb failed; see $DATA_DIR/log"
  printf '%s\n' "CREATE ROLE fleet LOGIN PASSWORD '$PASSWORD';" "CREATE DATABASE fleet OWNER fleet;" |
    "${AS[@]}" "$bin/postgres" --single -D "$CLUSTER.new" postgres >>"$DATA_DIR/log" 2>&1
  mv "$CLUSTER.new" "$CLUSTER"
}

command_line() {
  local bin
  bin=$(programs)
  [[ -s $CLUSTER/PG_VERSION ]] || create_cluster "$bin"
  # shellcheck disable=SC2206 # options are words
  COMMAND=("${AS[@]}" "$bin/postgres" -D "$CLUSTER" -p "$PORT" -c listen_addresses=127.0.0.1
    -c unix_socket_directories= -c shared_buffers=32MB ${POSTGRES_OPTIONS:-})
}

ready() { "$(programs)/pg_isready" -q -h 127.0.0.1 -p "$PORT" -t 2; }

address() { echo "postgres://fleet:$PASSWORD@127.0.0.1:$PORT/fleet"; }

# A process that waits to be reaped holds nothing any more.
is_alive() { [[ $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null || echo Z) != Z* ]]; }

# TERM would wait until every client has left. A crash takes the children too, which would hold on to
# the memory that they share.
finish() {
  local signal=$1 pid all
  pid=$(running_pid) || { rm -f "$DATA_DIR/pid"; return 0; }
  all=$pid
  if [[ $signal == KILL ]]; then
    kill -STOP "$pid"
    all="$pid $(cat "/proc/$pid/task/$pid/children")"
  else
    signal=INT
  fi
  # shellcheck disable=SC2086 # several
  kill "-$signal" $all 2>/dev/null || true
  for pid in $all; do
    while is_alive "$pid"; do sleep 0.05; done
  done
  rm -f "$DATA_DIR/pid"
  [[ $signal != KILL ]] || rm -f "$CLUSTER/postmaster.pid"
}

main "$@"
