"""The Helm chart: it renders, Kubernetes and the operators would take it, and bad values are refused."""

import functools
import json
import shutil

import jsonschema
import kubernetes_validate
import pytest
import yaml
from conftest import CHART, HERE, KUBERNETES, TOOLS, VALUES, container, helm, names_of_settings, of_kind, rendered, succeed

SMALL, FULL, EXISTING = (HERE / "values" / f"{name}.yaml" for name in ("small", "full", "existing"))
OPERATORS = {
    "ScaledObject": "keda.sh_scaledobjects",
    "TriggerAuthentication": "keda.sh_triggerauthentications",
    "ServiceMonitor": "monitoring.coreos.com_servicemonitors",
    "PrometheusRule": "monitoring.coreos.com_prometheusrules",
}
ROLES = {"orchestrator", "aggregator", "graph-writer", "gateway"}


def name_of(file):
    return file.stem


def strictly(schema):
    """An operator's schema, refusing fields it does not name: a cluster would drop them in silence."""
    if isinstance(schema, list):
        return [strictly(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: strictly(value) for key, value in schema.items()}
    named = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if named and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        strict["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        strict.pop("type", None)
    return strict


@functools.cache
def validator(kind):
    definition = yaml.safe_load((TOOLS / "schemas" / f"{OPERATORS[kind]}.yaml").read_text())
    (version,) = [one for one in definition["spec"]["versions"] if one["storage"]]
    schema = strictly(version["schema"]["openAPIV3Schema"])
    # Every object has these, and the API server knows them.
    schema["properties"]["metadata"] = {"type": "object"}
    api = f"{definition['spec']['group']}/{version['name']}"
    return api, jsonschema.Draft202012Validator(schema)


def validate(found, kubernetes):
    if found["kind"] in OPERATORS:
        api, schema = validator(found["kind"])
        assert found["apiVersion"] == api
        problems = [f"{error.json_path}: {error.message}" for error in schema.iter_errors(found)]
        assert not problems, f"{found['kind']} {found['metadata']['name']}: {problems}"
    else:
        kubernetes_validate.validate(found, kubernetes, strict=True)


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("values", VALUES, ids=name_of)
def test_every_object_is_valid_by_the_schemas_of_kubernetes_and_the_operators(values, kubernetes):
    objects = rendered(values, kubernetes=kubernetes)
    for found in objects:
        validate(found, kubernetes)
    names = [(found["kind"], found["metadata"]["name"]) for found in objects]
    assert len(names) == len(set(names)), "two objects have one name"


def test_the_validators_refuse_what_is_wrong():
    """A validator that takes everything would prove nothing."""
    objects = rendered(FULL)
    scaled = json.loads(json.dumps(of_kind(objects, "ScaledObject")["orchestrator"]))
    scaled["spec"]["minReplicas"] = scaled["spec"].pop("minReplicaCount")
    with pytest.raises(AssertionError, match="minReplicas"):
        validate(scaled, KUBERNETES[-1])
    deployment = json.loads(json.dumps(of_kind(objects, "Deployment")["orchestrator"]))
    container(deployment)["livenessProbe"]["httpPath"] = "/"
    with pytest.raises(kubernetes_validate.ValidationError, match="httpPath"):
        validate(deployment, KUBERNETES[-1])


@pytest.mark.parametrize("values", VALUES, ids=name_of)
def test_helm_finds_no_fault(values):
    succeed(TOOLS / "helm", "lint", "--strict", CHART, "--values", values)


def test_with_no_values_every_one_that_is_missing_is_named():
    refused = helm("template")
    assert refused.returncode != 0
    for name in ("/image/repository", "/broker/url", "/records/url", "/graph/url", "/model"):
        assert f"at '{name}'" in refused.stderr, name


REFUSED = [
    ('broker.url="embedded"', "/broker/url"),
    ('broker.url="http://pulsar:8080"', "/broker/url"),
    ('broker.adminUrl="pulsar.example"', "/broker/adminUrl"),
    ('broker.adminURL="http://pulsar:8080"', "adminURL"),
    ('broker.topics={"requests":"agent-request"}', "requests"),
    ('broker.authentication="tls"', "/broker/authentication"),
    ('broker.authentication="token"', "`broker.authentication`"),
    ('records.url="s3://bucket/fleet"', "/records/url"),
    ('graph.url="embedded"', "/graph/url"),
    ('coordination.url="embedded"', "/coordination/url"),
    ('model="auto"', "/model"),
    ('model="gpt"', "/model"),
    ('secrets.values={"OPENAI_KEY":"x"}', "OPENAI_KEY"),
    ('secrets={"existing":"mine","values":{"OPENAI_API_KEY":"x"}}', "`secrets.existing`"),
    ('settings={"subagent_timout":"5m"}', "subagent_timout"),
    ('settings={"concurrency":4}', "concurrency"),
    ('orchestrator.replicas=0', "/orchestrator/replicas"),
    ('orchestrator.concurrency=0', "/orchestrator/concurrency"),
    ('orchestrator.concurency=8', "concurency"),
    ('orchestrator.graceSeconds="2m"', "/orchestrator/graceSeconds"),
    ('orchestrator.autoscaling.minReplicas=30', "`orchestrator.autoscaling.minReplicas`"),
    ('orchestrator.autoscaling.minReplicas=-1', "/orchestrator/autoscaling/minReplicas"),
    ('aggregator.autoscaling.minReplicas=0', "/aggregator/autoscaling/minReplicas"),
    ('graphWriter.podDisruptionBudget.maxUnavailable=0', "/graphWriter/podDisruptionBudget/maxUnavailable"),
    ('gateway.service.type="Ingress"', "/gateway/service/type"),
    ('gateway.tls.secret="My_Secret"', "/gateway/tls/secret"),
    ('gateway.tls.certificate=""', "/gateway/tls/certificate"),
    ('keda.enabled=true', "`broker.adminUrl`"),
    ('image.tag="latest:1"', "/image/tag"),
    ('orchestrators={}', "orchestrators"),
]


@pytest.mark.parametrize(("wrong", "named"), REFUSED, ids=[wrong for wrong, _ in REFUSED])
def test_a_bad_value_is_refused_by_its_name(wrong, named):
    refused = helm("template", SMALL, sets=[wrong])
    assert refused.returncode != 0, "it was taken"
    assert named in refused.stderr


def test_every_value_is_in_the_schema_and_every_setting_of_the_schema_is_the_binarys():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    # The chart sets these itself, or they are of the embedded parts.
    own = {"data", "broker", "broker_admin", "broker_tenant", "broker_namespace", "broker_topics", "broker_token"}
    own |= {"broker_certificates", "graph", "graph_query", "graph_update", "graph_user", "graph_password", "graph_token", "http_token"}
    own |= {"records", "coordination", "model", "base_url", "concurrency", "listen", "health"}
    own |= {"grace", "max_quads", "log", "log_format", "tls_certificate", "tls_key", "fleet_secret"}
    assert set(schema["properties"]["settings"]["propertyNames"]["enum"]) == names_of_settings() - own


@pytest.mark.parametrize("values", VALUES, ids=name_of)
def test_every_variable_is_a_setting_that_the_binary_knows(values):
    known = {f"AGENTFLEET_{name.upper()}" for name in names_of_settings()}
    for workload in [*of_kind(rendered(values), "Deployment").values(), *of_kind(rendered(values), "Pod").values()]:
        names = [one["name"] for one in container(workload)["env"]]
        assert len(names) == len(set(names)), "a variable stands twice"
        assert {name for name in names if name.startswith("AGENTFLEET_")} <= known


@pytest.mark.parametrize("values", VALUES, ids=name_of)
def test_every_pod_is_confined(values):
    workloads = [one["spec"]["template"]["spec"] for one in of_kind(rendered(values), "Deployment").values()]
    workloads += [one["spec"] for one in of_kind(rendered(values), "Pod").values()]
    assert workloads
    for pod in workloads:
        # Variables of services would be taken for settings, and refused.
        assert pod["enableServiceLinks"] is False
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        (only,) = pod["containers"]
        assert only["securityContext"]["readOnlyRootFilesystem"] is True
        assert only["securityContext"]["allowPrivilegeEscalation"] is False
        assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        written = {mount["mountPath"] for mount in only["volumeMounts"]}
        assert {"/var/lib/agentfleet", "/tmp"} <= written


def test_credentials_reach_only_who_needs_them_and_never_as_text():
    objects = rendered(FULL)
    for role, deployment in of_kind(objects, "Deployment").items():
        text = json.dumps(deployment)
        assert "-word" not in text, "a credential stands in the pod"
        env = {one["name"]: one for one in container(deployment)["env"]}
        calls_models = role in {"orchestrator", "gateway"}
        assert ("OPENAI_API_KEY" in env) == calls_models, role
        assert (env["AGENTFLEET_MODEL"]["value"] == "offline") == (not calls_models), role
        assert env["AGENTFLEET_BROKER_TOKEN"]["value"] == "file:/etc/agentfleet/token/token"
    (secret,) = of_kind(objects, "Secret").values()
    assert secret["stringData"]["OPENAI_API_KEY"] == "model-word"
    # A changed credential restarts the pods.
    before = of_kind(objects, "Deployment")["gateway"]["spec"]["template"]["metadata"]["annotations"]
    changed = rendered(FULL, sets=('secrets.values.OPENAI_API_KEY="new"',))
    after = of_kind(changed, "Deployment")["gateway"]["spec"]["template"]["metadata"]["annotations"]
    assert before["checksum/secrets"] != after["checksum/secrets"]
    assert not of_kind(rendered(EXISTING), "Secret")


@pytest.mark.parametrize("values", VALUES, ids=name_of)
def test_whoever_selects_pods_finds_them(values):
    objects = rendered(values)
    deployments = of_kind(objects, "Deployment")
    pods = {role: one["spec"]["template"]["metadata"]["labels"] for role, one in deployments.items()}
    assert set(deployments) == ROLES - ({"gateway"} if values == EXISTING else set())

    def chosen(selector):
        return {role for role, labels in pods.items() if selector.items() <= labels.items()}

    for role, one in deployments.items():
        assert chosen(one["spec"]["selector"]["matchLabels"]) == {role}
    for role, one in of_kind(objects, "PodDisruptionBudget").items():
        assert chosen(one["spec"]["selector"]["matchLabels"]) == {role}
    for role, one in of_kind(objects, "NetworkPolicy").items():
        assert chosen(one["spec"]["podSelector"]["matchLabels"]) == ({role} - {"doctor"})
    for role, one in of_kind(objects, "ScaledObject").items():
        assert one["spec"]["scaleTargetRef"]["name"] == deployments[role]["metadata"]["name"]
        assert "replicas" not in deployments[role]["spec"], "two would set the number of replicas"
    services = of_kind(objects, "Service")
    assert chosen(services["metrics"]["spec"]["selector"]) == set(pods)
    if "gateway" in services:
        assert chosen(services["gateway"]["spec"]["selector"]) == {"gateway"}
    for one in of_kind(objects, "ServiceMonitor").values():
        assert one["spec"]["selector"]["matchLabels"].items() <= services["metrics"]["metadata"]["labels"].items()


@pytest.mark.parametrize("values", VALUES, ids=name_of)
def test_there_is_more_time_to_stop_than_the_drain_takes(values):
    for role, one in of_kind(rendered(values), "Deployment").items():
        env = {entry["name"]: entry.get("value") for entry in container(one)["env"]}
        grace = int(env["AGENTFLEET_GRACE"].removesuffix("s"))
        stages = 3 if role == "gateway" else 2
        sleep = container(one).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > stages * grace + sleep


def test_policies_let_out_to_every_server_and_models_only_where_they_are_called():
    for role, policy in of_kind(rendered(FULL), "NetworkPolicy").items():
        ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
        servers = {53, 6651, 7651, 8443, 5433, 443, 7200, 7300}
        models = set() if role in {"aggregator", "graph-writer"} else {8000, 11434}
        assert ports == servers | models, role
    gateway = of_kind(rendered(FULL), "NetworkPolicy")["gateway"]
    assert len(gateway["spec"]["ingress"][0]["from"]) == 2
    ports = {port["port"] for rule in of_kind(rendered(SMALL), "NetworkPolicy")["aggregator"]["spec"]["egress"] for port in rule["ports"]}
    assert ports == {53, 6650, 5432, 3030}


def test_a_gateway_with_a_certificate_is_probed_and_scraped_over_https_and_no_other_role_is():
    for values, secured in ((FULL, {"gateway"}), (SMALL, set())):
        objects = rendered(values)
        for role, deployment in of_kind(objects, "Deployment").items():
            pod, only = deployment["spec"]["template"]["spec"], container(deployment)
            schemes = {only[f"{probe}Probe"]["httpGet"]["scheme"] for probe in ("startup", "liveness", "readiness")}
            assert schemes == {"HTTPS" if role in secured else "HTTP"}, role
            env = {one["name"]: one.get("value") for one in only["env"]}
            files = {env.get("AGENTFLEET_TLS_CERTIFICATE"), env.get("AGENTFLEET_TLS_KEY")}
            mounted = [mount["mountPath"] for mount in only["volumeMounts"] if mount["name"] == "tls"]
            annotations = deployment["spec"]["template"]["metadata"]["annotations"]
            assert (annotations.get("prometheus.io/scheme") == "https") == (role in secured), role
            if role not in secured:
                assert files == {None} and not mounted
                continue
            (volume,) = [one["secret"] for one in pod["volumes"] if one["name"] == "tls"]
            assert volume["secretName"] == "gateway-certificate"
            assert {item["key"] for item in volume["items"]} == {"server.pem", "tls.key"}
            # Whole folders are brought up to date in a running pod, single files are not.
            assert files == {f"{mounted[0]}/{item['path']}" for item in volume["items"]}
    (port,) = of_kind(rendered(FULL), "Service")["gateway"]["spec"]["ports"]
    assert port["appProtocol"] == "https"
    (monitor,) = of_kind(rendered(FULL), "ServiceMonitor").values()
    (endpoint,) = monitor["spec"]["endpoints"]
    (scheme,) = [one for one in endpoint["relabelings"] if one["targetLabel"] == "__scheme__"]
    assert (scheme["regex"], scheme["replacement"]) == ("gateway", "https")
    without = rendered(FULL, sets=('gateway.tls.secret=""',))
    (monitor,) = of_kind(without, "ServiceMonitor").values()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert "tlsConfig" not in endpoint and len(endpoint["relabelings"]) == 1


def test_scalers_watch_the_topics_by_the_names_the_fleet_gives_them():
    def watched(values, role):
        return [trigger["metadata"] for trigger in of_kind(rendered(values), "ScaledObject")[role]["spec"]["triggers"]]

    (only,) = watched(FULL, "orchestrator")
    assert only == {
        "adminURL": "https://pulsar.example:8443",
        "topic": "persistent://acme/agents/requests",
        "subscription": "orchestrator",
        "msgBacklogThreshold": "40",
        "activationMsgBacklogThreshold": "0",
        "isPartitionedTopic": "true",
        "authModes": "bearer",
    }
    (only,) = watched(FULL, "graph-writer")
    assert (only["topic"], only["subscription"]) == ("persistent://acme/provenance/triples", "graph-writer")
    (authentication,) = of_kind(rendered(FULL), "TriggerAuthentication").values()
    parameters = {one["parameter"]: one["key"] for one in authentication["spec"]["secretTargetRef"]}
    assert parameters == {"bearerToken": "AGENTFLEET_BROKER_TOKEN", "ca": "authorities.pem"}


def test_a_fleet_that_may_sleep_is_kept_awake_by_what_was_put_off():
    triggers = of_kind(rendered(EXISTING), "ScaledObject")["orchestrator"]["spec"]["triggers"]
    topics = [trigger["metadata"]["topic"].rsplit("/", 1)[1] for trigger in triggers]
    assert topics == ["agent-request", "agent-request-delayed", "agent-request-orchestrator-retry"]
    work, *put_off = [int(trigger["metadata"]["msgBacklogThreshold"]) for trigger in triggers]
    assert work == 16, "one replica for as much as it works at once"
    assert min(put_off) >= 1_000_000, "what was put off must not make a second replica"
    assert {trigger["authenticationRef"]["name"] for trigger in triggers} == {"pulsar"}
    assert not of_kind(rendered(EXISTING), "TriggerAuthentication")


def notes(folder, values, sets=()):
    """What Helm says after an install, which it renders on a cluster only: so it is a file here."""
    chart = shutil.copytree(CHART, folder / "chart", dirs_exist_ok=True)
    (chart / "files/notes").write_text((CHART / "templates/NOTES.txt").read_text())
    (chart / "templates/notes.yaml").write_text(
        "kind: ConfigMap\napiVersion: v1\ndata:\n  notes: {{ tpl (.Files.Get \"files/notes\") . | quote }}\n"
    )
    options = [word for one in sets for word in ("--set-json", one)]
    said = succeed(
        TOOLS / "helm", "template", "agentfleet", chart, "--show-only", "templates/notes.yaml",
        "--kube-version", KUBERNETES[-1], "--namespace", "agents", "--values", values, *options,
    )
    return yaml.safe_load(said)["data"]["notes"]


def test_the_notes_say_what_to_do_and_warn(tmp_path):
    said = notes(tmp_path, FULL)
    assert "helm test agentfleet --namespace agents" in said
    assert "port-forward service/fleet 8700:80" in said
    assert "https://127.0.0.1:8700/requests" in said
    assert "the certificate of the Secret gateway-certificate" in said
    assert "WARNING" not in said
    plain = notes(tmp_path, FULL, ('gateway.tls.secret=""',))
    assert "WARNING: its Service is of type LoadBalancer" in plain
    assert "http://127.0.0.1:8700/requests" in plain
    assert "offline" not in said
    said = notes(tmp_path, SMALL)
    assert "WARNING" not in said
    assert "cannot reason" in said
    assert "`broker.adminUrl` is empty" in said
    assert "No gateway runs" in notes(tmp_path, EXISTING)


def test_the_packaged_chart_holds_alerts_and_dashboard(tmp_path):
    succeed(TOOLS / "helm", "package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.glob("agentfleet-*.tgz")
    said = succeed("tar", "-xzOf", package, "agentfleet/files/alerts.yaml", "agentfleet/files/agentfleet.json")
    assert "AgentfleetRequestsStuck" in said
    assert '"uid": "agentfleet"' in said
