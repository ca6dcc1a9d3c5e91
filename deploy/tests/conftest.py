"""What all tests of deploy/ share: where things lie, the tools, and the chart as Helm renders it."""

import functools
import json
import os
import pathlib
import subprocess

import yaml

HERE = pathlib.Path(__file__).parent
DEPLOY = HERE.parent
ROOT = DEPLOY.parent
CHART = DEPLOY / "helm/agentfleet"
TOOLS = pathlib.Path(os.environ["TOOLS"])
BIN = pathlib.Path(os.environ["BIN"])
VALUES = sorted((HERE / "values").glob("*.yaml"))
# The oldest Kubernetes that the chart takes, and the newest whose schemas we have.
KUBERNETES = ["1.30.0", "1.37.0"]


def run(*command, stdin=None, env=None, cwd=None):
    """Runs a command to its end."""
    command = [str(word) for word in command]
    return subprocess.run(command, input=stdin, env=env, cwd=cwd, capture_output=True, text=True, check=False)


def succeed(*command, **options):
    """Runs a command that must succeed, and returns what it printed."""
    ended = run(*command, **options)
    assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def helm(verb, *values, sets=(), kubernetes=KUBERNETES[-1]):
    """Runs `helm template` or `helm install` on the chart."""
    options = [word for file in values for word in ("--values", file)]
    options += [word for one in sets for word in ("--set-json", one)]
    if verb == "template":
        options += ["--kube-version", kubernetes]
    return run(TOOLS / "helm", verb, "agentfleet", CHART, "--namespace", "agents", *options)


@functools.cache
def rendered(values, sets=(), kubernetes=KUBERNETES[-1]):
    """The objects of the chart with one file of values."""
    ended = helm("template", values, sets=sets, kubernetes=kubernetes)
    assert ended.returncode == 0, ended.stderr
    return [found for found in yaml.safe_load_all(ended.stdout) if found]


def of_kind(objects, kind):
    """The objects of one kind, by their component."""
    found = [one for one in objects if one["kind"] == kind]
    return {one["metadata"]["labels"].get("app.kubernetes.io/component", one["metadata"]["name"]): one for one in found}


def container(workload):
    """The one container of a Deployment or Pod."""
    spec = workload["spec"]
    spec = spec.get("template", {}).get("spec", spec)
    (only,) = spec["containers"]
    return only


def names_of_settings():
    """The keys of all settings, as the binary tells them."""
    data = {"AGENTFLEET_DATA": "/nowhere", "PATH": os.environ["PATH"]}
    return set(json.loads(succeed(BIN, "settings", "--json", env=data)))
