#!/usr/bin/env bash
# Fails if one of the named crates is linked: banned.sh crate ...
# One TLS provider (`ring`) only: two in one process make rustls panic at the first connection.
set -euo pipefail
found=0
for crate in "$@"; do
  if tree=$(cargo tree --workspace --edges normal,build --invert "$crate" 2>/dev/null) && [ -n "$tree" ]; then
    echo "banned crate \`$crate\` is linked:" >&2
    echo "$tree" | head -20 >&2
    found=1
  fi
done
exit $found
