#!/usr/bin/env bash
# Installs Debian packages whose command or file is missing: packages.sh command:package /file:package ...
# A file may have wildcards, for what is not in PATH.
# Says nothing when everything is there.
set -euo pipefail
missing=()
for pair in "$@"; do
  command -v "${pair%%:*}" >/dev/null 2>&1 || compgen -G "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
# `python3 -m venv` needs a package of its own on Debian.
if [[ " $* " == *" python3:python3 "* ]] && ! python3 -c 'import ensurepip' >/dev/null 2>&1; then
  missing+=(python3-venv)
fi
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "missing: ${missing[*]}. Install them with your system's package manager." >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || {
    echo "missing: ${missing[*]}. Run as root: apt-get install -y ${missing[*]}" >&2
    exit 1
  }
  sudo=(sudo)
fi
echo "Installing ${missing[*]} ..."
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
