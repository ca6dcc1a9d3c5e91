#!/usr/bin/env bash
# Fails if a crate is linked whose licence deny.toml does not allow. Needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."
allowed=$(sed -n '/^allow = \[/,/^\]/s/^ *"\([^"]*\)".*/\1/p' deny.toml)
# Every part of an `AND` must be allowed; of an `OR`, written `/` by older crates, one.
cargo tree --workspace --edges normal,build --prefix none --format '{p}|{l}' | sed 's/ (\*)$//' | sort -u | awk -F'|' -v allowed="$allowed" '
  BEGIN { n = split(allowed, names, "\n"); for (i = 1; i <= n; i++) may[names[i]] = 1 }
  NF > 1 {
    licence = $2; gsub(/ *\/ */, " OR ", licence); gsub(/[()]/, "", licence)
    parts = split(licence, all, " AND "); well = 1
    for (p = 1; p <= parts; p++) {
      options = split(all[p], any, " OR "); one = 0
      for (o = 1; o <= options; o++) one = one || (any[o] in may)
      well = well && one
    }
    if (!well) { print "licence `" $2 "` of `" $1 "` is not in deny.toml" > "/dev/stderr"; bad = 1 }
  }
  END { if (NR == 0) { print "cargo tree names no crate" > "/dev/stderr"; bad = 1 } exit bad }'
