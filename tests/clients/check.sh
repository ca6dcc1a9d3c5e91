#!/bin/sh
# Runs the clients in Python and Java against a fleet on real servers: what test_clients.py says.
# Arguments go to the runner: check.sh -k restarted
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=$("$here/venv.sh")
exec "$python" -W ignore "$here/test_clients.py" "$@"
