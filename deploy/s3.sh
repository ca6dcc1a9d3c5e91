#!/usr/bin/env bash
# A real S3 server for one machine: the Versity gateway over a folder. For trying things and for tests.
#
#   deploy/s3.sh install | start | stop | kill | restart | status | wipe
#
# kill is a crash (SIGKILL): what was stored stays. wipe deletes the objects of a stopped instance.
# Its first bucket is `fleet`.
#
# Environment (defaults):
#   S3_DATA_DIR   ~/.cache/agentfleet/s3: one instance; another folder is another instance
#   S3_PORT 7070: on loopback; 0 takes a free one and keeps it
#   S3_ACCESS_KEY fleet, S3_SECRET_KEY fleetsecret
set -euo pipefail

NAME=s3.sh
VERSION=v1.8.0
# shellcheck source=deploy/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=deploy/go.sh
source "$(dirname "${BASH_SOURCE[0]}")/go.sh"
DATA_DIR=${S3_DATA_DIR:-$CACHE/s3}
PORT=${S3_PORT:-7070}
BINARY=$CACHE/bin/versitygw-$VERSION
MATCH="posix $DATA_DIR/buckets"

cmd_install() {
  local go
  [[ -x $BINARY ]] && return
  locked "$BINARY"
  if [[ ! -x $BINARY ]]; then
    go=$(find_go 25)
    echo "Building the Versity S3 gateway $VERSION (about 3 minutes, once) ..."
    GOBIN=$CACHE/bin/build "$go" install "github.com/versity/versitygw/cmd/versitygw@$VERSION"
    mv "$CACHE/bin/build/versitygw" "$BINARY"
  fi
  exec 9>&-
}

command_line() {
  mkdir -p "$DATA_DIR/buckets/fleet"
  export ROOT_ACCESS_KEY=${S3_ACCESS_KEY:-fleet} ROOT_SECRET_KEY=${S3_SECRET_KEY:-fleetsecret}
  COMMAND=("$BINARY" --quiet --port "127.0.0.1:$PORT" posix "$DATA_DIR/buckets")
}

# Refused access is an answer too.
ready() { curl -sS -m 2 -o /dev/null "http://127.0.0.1:$PORT/" 2>/dev/null; }

address() { echo "http://127.0.0.1:$PORT"; }

main "$@"
