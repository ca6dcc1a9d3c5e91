#!/bin/sh
# Proves that the validators catch errors, then validates traces: the committed ones, what the
# core as it stands writes otherwise, and those of random runs with faults. More files can be named: check.sh [FILE...]
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
python=$("$here/venv.sh")

"$python" -W ignore -m unittest discover --start-directory "$here"

samples=$(mktemp -d)
random=$(mktemp -d)
trap 'rm -rf "$samples" "$random"' EXIT
# Runs of the simulator, with everything that can go wrong in them. The whole workspace is named, because
# one package alone is built with other features of its dependencies, and so all of them anew.
(
    cd "$root"
    AGENTFLEET_SIM_TRACES="$random" AGENTFLEET_SIM_RUNS=10 \
        cargo test --quiet --workspace --test simulated simulator::fresh >/dev/null
    cargo build --quiet --workspace --example sample_trace
    "${CARGO_TARGET_DIR:-target}/debug/examples/sample_trace" "$samples" >/dev/null
)
# The committed traces were validated above: a sample that is the same needs no second look. Digests are of
# records, which hold more than they tell.
told() { grep -v '<https://trustgraph.ai/ns/digest>' "$1"; }
for sample in "$samples"/*.nq; do
    committed=$root/schema/fixtures/traces/${sample##*/}
    ! test -e "$committed" || test "$(told "$sample")" != "$(told "$committed")" || rm "$sample"
done
find "$samples" "$random" -name '*.nq' -exec "$python" "$here/validate.py" "$@" {} +
