#!/usr/bin/env bash
# Prints the path of a Python that has LangGraph and DBOS, and below it the folder of the node packages, which
# has Restate. Sets up first what is missing, in $AGENTFLEET_CACHE if that is set, else in .cache at the top
# of the project.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
node=${AGENTFLEET_CACHE:-$root/.cache}/peers-node

"$root/deploy/packages.sh" python3:python3 node:nodejs npm:npm >&2
"$root/tests/venv.sh" peers "$here/requirements.txt" "$root/.cache/peers"

stamp=$(node --version; cat "$here/package-lock.json")
if [[ ! -f $node/stamp || $(<"$node/stamp") != "$stamp" ]]; then
  echo "setting up Restate in $node (once)" >&2
  mkdir -p "$node"
  cp "$here/package.json" "$here/package-lock.json" "$node"
  # None of the packages' scripts is needed, and one of them reports who installs.
  (cd "$node" && npm ci --ignore-scripts --no-fund --no-audit --no-update-notifier --loglevel=error) >&2
  printf '%s\n' "$stamp" >"$node/stamp"
fi
echo "$node/node_modules"
