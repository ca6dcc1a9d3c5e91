"""The images and the compose file. No Docker is needed, so nothing is built: what they name must be there,
and what they say must agree with the rest of the project."""

import json
import os
import re
import shutil

import jsonschema
import pytest
import yaml
from conftest import BIN, DEPLOY, ROOT, TOOLS, VALUES, container, names_of_settings, of_kind, rendered, run, succeed

DOCKERFILES = [DEPLOY / "Dockerfile", DEPLOY / "fuseki/Dockerfile"]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {"gateway", "orchestrator", "aggregator", "graph-writer"}


def instructions(file):
    """The instructions of a Dockerfile: their names and the rest of their lines."""
    text = re.sub(r"\\\n", " ", "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#")))
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def copied():
    """What the build stage takes of the project."""
    sources = []
    for name, rest in instructions(DOCKERFILES[0]):
        if name == "COPY" and "--from" not in rest:
            sources += rest.split()[:-1]
    return sources


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_hadolint_finds_no_fault(file):
    hadolint = shutil.which("hadolint", path=os.path.dirname(os.sys.executable))
    succeed(hadolint, "--failure-threshold", "info", file)


def test_the_build_stage_copies_a_whole_workspace(tmp_path):
    sources = copied()
    assert {"Cargo.toml", "Cargo.lock", "services", "schema"} <= set(sources)
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for source in sources:
        found = ROOT / source
        assert found.exists(), f"`{source}` is not there"
        assert f"!{source}" in ignored, f"`{source}` is kept out by Dockerfile.dockerignore"
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            shutil.copytree(found, target)
        else:
            shutil.copy(found, target)
    succeed("cargo", "metadata", "--no-deps", "--locked", "--offline", "--format-version", "1", cwd=tmp_path)
    # What is built into the binary comes from below the folders that are there.
    for script in tmp_path.glob("services/*/build.rs"):
        for outside in re.findall(r'"((?:\.\./)+[^"]+)"', script.read_text()):
            assert (script.parent / outside).exists(), f"{script.relative_to(tmp_path)} reads `{outside}`"
    # The packages are installed as for any build.
    assert run("make", "--no-print-directory", "--dry-run", "setup", cwd=tmp_path).stdout.startswith("deploy/packages.sh cc:gcc")


def test_the_image_is_of_the_rust_and_the_debian_that_the_project_says():
    bases = [rest.split()[0] for name, rest in instructions(DOCKERFILES[0]) if name == "FROM"]
    rust = re.search(r'rust-version = "(.+)"', (ROOT / "Cargo.toml").read_text())[1]
    assert bases == [f"rust:{rust}-bookworm", "gcr.io/distroless/cc-debian12:nonroot"]


def test_the_binary_needs_no_library_that_the_image_lacks():
    has = {"linux-vdso.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
    needs = {os.path.basename(line.split()[0]) for line in succeed("ldd", BIN).splitlines()}
    assert {name for name in needs if not name.startswith("ld-linux")} <= has


def test_the_image_runs_what_chart_and_compose_file_call():
    said = dict(instructions(DOCKERFILES[0]))
    entry = json.loads(said["ENTRYPOINT"])
    commands = set(re.findall(r"^  ([a-z-]+) ", succeed(BIN, "--help"), re.MULTILINE))
    assert json.loads(said["CMD"])[0] in commands
    pods = rendered(VALUES[0])
    for one in of_kind(pods, "Deployment").values():
        assert container(one)["command"] == entry
        assert container(one)["args"][0] in commands
        user = one["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
        assert said["USER"] == f"{user}:{user}"
        assert str(container(one)["ports"][0]["containerPort"]) in said["EXPOSE"].split()
    for name in OURS:
        assert COMPOSE["services"][name]["command"][0] in commands
    known = {f"AGENTFLEET_{name.upper()}" for name in names_of_settings()}
    variables = set(re.findall(r"(AGENTFLEET_\w+)=", said["ENV"]))
    for name in OURS:
        variables |= {one for one in COMPOSE["services"][name]["environment"] if one.startswith("AGENTFLEET_")}
    assert variables
    assert variables <= known


def test_the_compose_file_is_one():
    schema = json.loads((TOOLS / "schemas/compose-spec.json").read_text())
    problems = [f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(COMPOSE)]
    assert not problems
    broken = json.loads(json.dumps(COMPOSE))
    broken["services"]["pulsar"]["restarts"] = "always"
    assert not jsonschema.Draft202012Validator(schema).is_valid(broken)


def test_what_the_compose_file_names_is_there():
    services = COMPOSE["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] == "service_healthy"
            assert "healthcheck" in services[other], f"`{name}` waits for `{other}`, which cannot tell"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), source
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"`{name}` is published beyond this machine"
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / service["build"].get("dockerfile", "Dockerfile")).exists()
    hosts = set(re.findall(r"://(?:[a-z]+@)?([a-z0-9-]+):", json.dumps([services[name]["environment"] for name in OURS])))
    assert hosts == {"pulsar", "postgres", "fuseki"}
    ours, server = services["gateway"]["environment"], services["postgres"]["environment"]
    assert f"://{server['POSTGRES_USER']}@postgres:5432/{server['POSTGRES_DB']}?" in ours["AGENTFLEET_RECORDS"]
    assert ours["PGPASSWORD"] == server["POSTGRES_PASSWORD"]


def test_servers_are_of_the_versions_that_the_tests_run():
    def version(file, pattern):
        return re.search(pattern, (DEPLOY / file).read_text())[1]

    images = {name: service["image"].split(":")[1] for name, service in COMPOSE["services"].items()}
    assert images["pulsar"] == version("pulsar/pom.xml", r"<pulsar.version>(.+)<")
    assert images["postgres"] == version("../docs/operations.md", r"Tested on PostgreSQL (\d+)")
    assert images["fuseki"] == version("fuseki.sh", r"(?m)^VERSION=(.+)$") == version("fuseki/Dockerfile", r"VERSION=(.+)")
    # The module of Prometheus 3.x.y is called v0.3xx.y.
    major, minor, patch = images["prometheus"].removeprefix("v").split(".")
    assert version("tests/tools/go.mod", r"prometheus/prometheus (\S+)") == f"v0.{major}{int(minor):02}.{patch}"
    ours = {images[name] for name in OURS}
    workspace = re.search(r'(?m)^version = "(.+)"', (ROOT / "Cargo.toml").read_text())[1]
    chart = yaml.safe_load((DEPLOY / "helm/agentfleet/Chart.yaml").read_text())
    assert ours == {workspace} == {chart["appVersion"]}
