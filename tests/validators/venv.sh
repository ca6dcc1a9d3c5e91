#!/bin/sh
# Prints the path of a Python that has the validators, and sets it up first where it is missing: in
# $AGENTFLEET_CACHE/validators if that is set, else in .venv at the top of the project.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
exec "$root/tests/venv.sh" validators "$here/requirements.txt" "$root/.venv"
