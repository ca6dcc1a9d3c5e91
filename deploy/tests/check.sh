#!/usr/bin/env bash
# Tests everything in deploy/ that runs a fleet on servers: image, compose file, chart, dashboard,
# alerts. Starts real servers and real roles, on loopback and free ports, and ends them.
#
#   deploy/tests/check.sh [PYTEST OPTION...]
#
# BIN names the binary (target/debug/agentfleet).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export BIN=${BIN:-$root/target/debug/agentfleet}
[[ -x $BIN ]] || { echo "check.sh: there is no binary at $BIN: build it, or name it in BIN" >&2; exit 1; }
python=$("$here/tools.sh" python)
TOOLS=$("$here/tools.sh" folder)
export TOOLS PYTHONDONTWRITEBYTECODE=1
cd "$here"
# A copy, since it may be built anew meanwhile.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$BIN" "$work/agentfleet"
export BIN=$work/agentfleet
"$python" -m pytest -p no:cacheprovider --quiet --durations=5 "$@"
