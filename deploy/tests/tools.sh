#!/usr/bin/env bash
# What the tests of this folder work with, fetched or built once: a Python with requirements.txt; Helm,
# promtool and KEDA's own Pulsar scaler; and the schemas of KEDA, the Prometheus operator and compose.
#
#   deploy/tests/tools.sh install    # silent if everything is there
#   deploy/tests/tools.sh python     # the path of that Python, installed if it is not
#   deploy/tests/tools.sh folder     # the folder of the rest, the same way
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/agentfleet
die() { echo "tools.sh: $*" >&2; exit 1; }
# shellcheck source=deploy/go.sh
source "$HERE/../go.sh"

# Not in go.mod: only their schemas are read.
OPERATOR=github.com/prometheus-operator/prometheus-operator@v0.85.0
COMPOSE=github.com/compose-spec/compose-go/v2@v2.16.2

stamp() { cat "$@" | sha256sum | cut -c1-12; }
FOLDER=$CACHE/deploy-tools-$(stamp "$HERE"/tools/go.{mod,sum} "$HERE"/tools/pulsarscaler/main.go <(echo "$OPERATOR $COMPOSE"))
PYTHON=$CACHE/deploy-python-$(stamp "$HERE/requirements.txt" <(python3 --version))

# One at a time: several test runs may begin at once.
locked() {
  mkdir -p "$CACHE"
  exec 9>"$1.lock"
  flock 9
}

python() {
  [[ -f $PYTHON/.installed ]] && return
  locked "$PYTHON"
  if [[ ! -f $PYTHON/.installed ]]; then
    echo "Setting up Python for the tests of deploy/ (60 MB, once) ..." >&2
    python3 -m venv --clear "$PYTHON" >&2
    "$PYTHON/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$HERE/requirements.txt" >&2
    touch "$PYTHON/.installed"
  fi
  exec 9>&-
}

# Where a module lies that is not of go.mod.
module() {
  "$go" mod download -json "$1" | sed -nE 's/^\t"Dir": "(.*)",$/\1/p'
}

folder() {
  local go keda build
  [[ -f $FOLDER/.installed ]] && return
  locked "$FOLDER"
  if [[ ! -f $FOLDER/.installed ]]; then
    go=$(find_go 26)
    echo "Building Helm, promtool and KEDA's Pulsar scaler (about 5 minutes on 2 cores, once) ..." >&2
    build=$FOLDER/build
    mkdir -p "$build" "$FOLDER/schemas"
    cp -R "$HERE/tools/." "$build"
    keda=$(cd "$build" && "$go" mod download github.com/kedacore/keda/v2 &&
      "$go" list -m -f '{{.Dir}}' github.com/kedacore/keda/v2)
    mkdir -p "$build/scalers"
    install -m 644 "$keda"/pkg/scalers/{pulsar_scaler,scaler}.go "$build/scalers"
    # Of Prometheus' service discoveries only the one that deploy/prometheus/prometheus.yaml uses.
    (cd "$build" && nice "$go" build -mod=readonly -tags remove_all_sd,enable_dns_sd -ldflags '-s -w' -o "$FOLDER/" \
      ./pulsarscaler helm.sh/helm/v3/cmd/helm github.com/prometheus/prometheus/cmd/promtool) >"$FOLDER/log" 2>&1 ||
      { grep -v '^go: downloading' "$FOLDER/log" | tail -20 >&2; die "they could not be built"; }
    install -m 644 "$keda"/config/crd/bases/keda.sh_{scaledobjects,triggerauthentications}.yaml \
      "$(module "$OPERATOR")"/example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,prometheusrules}.yaml \
      "$(module "$COMPOSE")"/schema/compose-spec.json "$FOLDER/schemas"
    rm -rf "$build"
    touch "$FOLDER/.installed"
  fi
  exec 9>&-
}

case ${1:-} in
  install) python && folder ;;
  python) python && echo "$PYTHON/bin/python" ;;
  folder) folder && echo "$FOLDER" ;;
  *) sed -n '2,/^set -/{/^#/p}' "$0"; exit 2 ;;
esac
