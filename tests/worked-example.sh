#!/usr/bin/env bash
# Runs the worked example as a user does, on an empty data directory, and has independent validators
# read its trace. On servers, if the environment names them and roles work there.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin="$root/target/debug/agentfleet"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export AGENTFLEET_DATA="$work/data" AGENTFLEET_MODEL=offline

fail() { echo "worked example: $*" >&2; exit 1; }

"$bin" demo >"$work/answer.txt" 2>"$work/lanes.txt" || fail "the demo failed: $(cat "$work/lanes.txt")"
for part in Financial Reputational Legal Operational; do
  grep -q "^## .*$part\|^$part\|$part" "$work/answer.txt" || fail "no part \`$part\` in the answer"
done
for part in Financial Reputational Legal Operational; do
  awk -v part="## $part" '/^## /{on = $0 == part} on' "$work/answer.txt" | grep -q "Source: .*(urn:agentfleet:document:" \
    || fail "no source in part \`$part\` of the answer"
done
[ "$(grep -c '\] .*: answers: ' "$work/lanes.txt")" -eq 4 ] || fail "not four subagents"

session=$("$bin" sessions list --json | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["session"])')
for format in tree mermaid svg turtle json prov-json; do
  "$bin" trace "$session" --format "$format" >"$work/trace.$format"
  [ -s "$work/trace.$format" ] || fail "the $format trace is empty"
done
correlation=$(python3 - "$work/trace.turtle" <<'PY'
import re, sys
print(re.search(r'tg:correlationId "([^"]+)"', open(sys.argv[1]).read()).group(1))
PY
)
"$bin" trace "$correlation" >"$work/by-correlation.tree"
cmp -s "$work/trace.tree" "$work/by-correlation.tree" || fail "a correlation id does not lead to the whole tree"
mv "$work/trace.turtle" "$work/trace.ttl"
"$root/.venv/bin/python" "$root/tests/validators/validate.py" "$work/trace.ttl"
# Every step comes out of its records again.
"$bin" replay "$session" >"$work/replay.txt" || fail "a replay diverges: $(cat "$work/replay.txt")"
grep -q "of 5 sessions: no divergence$" "$work/replay.txt" || fail "not everything was replayed: $(cat "$work/replay.txt")"
# A fork at the synthesis needs no subagent, and its trace is valid by itself.
"$bin" fork "$session" --at 2 >"$work/fork.txt" 2>/dev/null || fail "the fork failed"
fork=$("$bin" sessions list --json | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["session"])')
"$bin" trace "$fork" --format turtle >"$work/fork.ttl"
"$root/.venv/bin/python" "$root/tests/validators/validate.py" "$work/fork.ttl"
"$bin" replay "$fork" >/dev/null || fail "the replay of the fork diverges"
"$bin" diff "$session" "$fork" >/dev/null || fail "the runs cannot be compared"
# A changed question changes the answer.
"$bin" ask "Which sanctions were screened?" --collection dossier >"$work/other.txt" 2>/dev/null
cmp -s "$work/answer.txt" "$work/other.txt" && fail "another question got the same answer"
"$bin" doctor >/dev/null || fail "doctor found something"
echo "worked example: 4 subagents, an answer with sources, 6 trace formats, valid provenance"
