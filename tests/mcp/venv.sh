#!/bin/sh
# Prints the path of a Python that has the official SDK of MCP, and sets it up first where it is missing: in
# $AGENTFLEET_CACHE/mcp if that is set, else in .venv-mcp at the top of the project.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
exec "$root/tests/venv.sh" mcp "$here/requirements.txt" "$root/.venv-mcp"
