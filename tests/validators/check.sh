#!/bin/sh
# Proves that the validators catch errors, then validates traces: the committed ones, ones that the
# core as it stands writes now, and those of random runs with faults. More files can be named: check.sh [FILE...]
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
python=$("$here/venv.sh")

"$python" -W ignore -m unittest discover --start-directory "$here"

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
# Runs of the simulator, with everything that can go wrong in them. The whole workspace is named, because
# one package alone is built with other features of its dependencies, and so all of them anew.
(
    cd "$root"
    AGENTFLEET_SIM_TRACES="$fresh" AGENTFLEET_SIM_RUNS=25 \
        cargo test --quiet --workspace --test simulator fresh >/dev/null
    cargo build --quiet --workspace --example sample_trace
    "${CARGO_TARGET_DIR:-target}/debug/examples/sample_trace" "$fresh" >/dev/null
)
"$python" "$here/validate.py" "$root"/schema/fixtures/traces/*.nq "$fresh"/*.nq "$@"
