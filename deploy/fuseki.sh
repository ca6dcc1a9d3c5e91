#!/usr/bin/env bash
# A real SPARQL 1.1 server for one machine: Apache Jena Fuseki, from a Maven artifact. For trying
# things and for tests.
#
#   deploy/fuseki.sh install | start | stop | kill | restart | status | wipe
#
# kill is a crash (SIGKILL); wipe deletes the triples of a stopped instance. The dataset is `/ds`.
#
# Environment (defaults):
#   FUSEKI_DATA_DIR   ~/.cache/agentfleet/fuseki: one instance; another folder is another instance
#   FUSEKI_PORT 3030: on loopback; 0 takes a free one and keeps it
#   FUSEKI_STORE tdb2: on disk; `mem` keeps the triples in memory only
#   FUSEKI_HEAP 512m
#   FUSEKI_PASSWORD: if set, user `fleet` must give it (basic authentication)
set -euo pipefail

NAME=fuseki.sh
VERSION=5.6.0
# shellcheck source=deploy/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/server.sh"
DATA_DIR=${FUSEKI_DATA_DIR:-$CACHE/fuseki}
PORT=${FUSEKI_PORT:-3030}
JAR=$CACHE/jena-fuseki-server-$VERSION.jar
MATCH="-Dagentfleet.instance=$DATA_DIR "

cmd_install() {
  [[ -s $JAR ]] && return
  command -v mvn >/dev/null || die "mvn not found (on Debian: apt-get install maven)"
  locked "$JAR"
  if [[ ! -s $JAR ]]; then
    echo "Fetching Apache Jena Fuseki $VERSION (56 MB, once) ..."
    mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
      -Dartifact="org.apache.jena:jena-fuseki-server:$VERSION" -DoutputDirectory="$CACHE/fetched" -Dmdep.useBaseVersion=true
    mv "$CACHE/fetched/jena-fuseki-server-$VERSION.jar" "$JAR"
  fi
  exec 9>&-
}

command_line() {
  local store=(--mem) users=()
  if [[ ${FUSEKI_STORE:-tdb2} == tdb2 ]]; then
    mkdir -p "$DATA_DIR/tdb2"
    store=(--tdb2 --loc "$DATA_DIR/tdb2")
  fi
  if [[ -n ${FUSEKI_PASSWORD:-} ]]; then
    (umask 077 && echo "fleet: $FUSEKI_PASSWORD" >"$DATA_DIR/passwords")
    users=(--passwd "$DATA_DIR/passwords" --auth basic)
  fi
  # A lock left by a crash of ours names a process that is gone; Fuseki breaks it by itself.
  COMMAND=("$(find_java)" "-Xmx${FUSEKI_HEAP:-512m}" "-Dagentfleet.instance=$DATA_DIR" -cp "$JAR"
    org.apache.jena.fuseki.main.cmds.FusekiMainCmd "${store[@]}" "${users[@]}"
    --update --localhost --port "$PORT" /ds)
}

ready() {
  local user=()
  [[ -z ${FUSEKI_PASSWORD:-} ]] || user=(--user "fleet:$FUSEKI_PASSWORD")
  curl -fsS -m 2 "${user[@]}" -o /dev/null "http://127.0.0.1:$PORT/ds/query?query=ASK%7B%7D" 2>/dev/null
}

address() { echo "http://127.0.0.1:$PORT/ds"; }

main "$@"
