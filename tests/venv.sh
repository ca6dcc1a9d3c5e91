#!/bin/sh
# Prints the path of a Python that has what a requirements file names, and sets it up first where it is
# missing: venv.sh NAME REQUIREMENTS FOLDER [OPTION OF PIP ...]
#
# The environment lies in $AGENTFLEET_CACHE/NAME if that is set, else in FOLDER. It is reused in
# silence while the requirements and the Python version are the same.
set -eu

name=$1 requirements=$2 venv=${AGENTFLEET_CACHE:+$AGENTFLEET_CACHE/$1}
venv=${venv:-$3}
shift 3
base=${PYTHON:-python3}

if ! command -v "$base" >/dev/null 2>&1; then
    echo "the $name need Python 3.10 or newer; install it (Debian: apt install python3-venv)" >&2
    exit 1
fi
stamp=$("$base" --version; cat "$requirements")
if [ -x "$venv/bin/python" ] && [ "$(cat "$venv/stamp" 2>/dev/null)" = "$stamp" ]; then
    echo "$venv/bin/python"
    exit 0
fi

echo "setting up the $name in $venv (once)" >&2
mkdir -p "$(dirname -- "$venv")"
if ! "$base" -m venv --clear "$venv" >&2; then
    echo "Python has no venv module (Debian: apt install python3-venv)" >&2
    exit 1
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" --requirement "$requirements" >&2
printf '%s\n' "$stamp" >"$venv/stamp"
echo "$venv/bin/python"
