#!/bin/sh
# Prints the path of a Python that has an OpenID Connect issuer, and sets it up first where it is missing:
# in $AGENTFLEET_CACHE/issuer if that is set, else in .venv-issuer at the top of the project.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
exec "$root/tests/venv.sh" issuer "$here/requirements.txt" "$root/.venv-issuer"
