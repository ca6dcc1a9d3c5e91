#!/bin/sh
# Proves that the validators catch errors, then validates traces: the committed ones, and ones that
# the core as it stands writes now. More files can be named: check.sh [FILE...]
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
python=$("$here/venv.sh")

"$python" -W ignore -m unittest discover --start-directory "$here"

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
(cd "$root" && cargo run --quiet -p agentfleet-core --example sample_trace -- "$fresh" >/dev/null)
"$python" "$here/validate.py" "$root"/schema/fixtures/traces/*.nq "$fresh"/*.nq "$@"
