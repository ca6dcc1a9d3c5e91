#!/bin/sh
# Prints the path of a Python that has the validators, and sets it up first where it is missing.
#
# The environment lies in $AGENTFLEET_CACHE/validators if that is set, else in .venv at the top of
# the project. It is reused in silence while requirements.txt and the Python version are the same.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
venv=${AGENTFLEET_CACHE:+$AGENTFLEET_CACHE/validators}
venv=${venv:-$root/.venv}
base=${PYTHON:-python3}

if ! command -v "$base" >/dev/null 2>&1; then
    echo "the trace validators need Python 3.10 or newer; install it (Debian: apt install python3-venv)" >&2
    exit 1
fi
stamp=$("$base" --version; cat "$here/requirements.txt")
if [ -x "$venv/bin/python" ] && [ "$(cat "$venv/stamp" 2>/dev/null)" = "$stamp" ]; then
    echo "$venv/bin/python"
    exit 0
fi

echo "setting up the trace validators in $venv (once)" >&2
mkdir -p "$(dirname -- "$venv")"
if ! "$base" -m venv --clear "$venv" >&2; then
    echo "Python has no venv module (Debian: apt install python3-venv)" >&2
    exit 1
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --requirement "$here/requirements.txt" >&2
printf '%s\n' "$stamp" >"$venv/stamp"
echo "$venv/bin/python"
