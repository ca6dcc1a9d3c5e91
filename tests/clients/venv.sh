#!/bin/sh
# Prints the path of a Python that has Pulsar's client, and sets it up first where it is missing: in
# $AGENTFLEET_CACHE/clients if that is set, else in .venv-clients at the top of the project.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
exec "$root/tests/venv.sh" clients "$here/requirements.txt" "$root/.venv-clients"
