#!/bin/sh
# Prints the path of a Python that has llama.cpp's server and a small language model, and sets it up first where it is
# missing: in $AGENTFLEET_CACHE/llm if that is set, else in .venv-llm at the top of the project.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
exec "$root/tests/venv.sh" llm "$here/requirements.txt" "$root/.venv-llm" --no-deps
