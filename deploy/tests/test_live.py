"""Chart and compose file on real servers: every role is started as it is written, its probes are asked
as they are written, its metrics are scraped, and it drains within its time. KEDA's own scaler asks what
the rendered ScaledObject says. In the order of the file: it is one story of one fleet."""

import json
import re
import urllib.request

import pytest
import yaml
from conftest import BIN, HERE, TOOLS, container, of_kind, rendered, run, succeed
from live import Model, Process, Servers, ending, free_port, until
from metrics import base, kinds, of_source, series, used
from test_image import COMPOSE, OURS
from test_monitoring import QUERIES, RULES, concrete

LIVE = HERE / "values/live.yaml"
OBJECTS = rendered(LIVE)
ROLES = of_kind(OBJECTS, "Deployment")
REQUESTS = 7


def variables(pod, objects=OBJECTS):
    """A container's variables, those of the Secret included."""
    (secret,) = of_kind(objects, "Secret").values()
    env = {}
    for one in container(pod)["env"]:
        if "value" in one:
            env[one["name"]] = one["value"]
        else:
            reference = one["valueFrom"]["secretKeyRef"]
            assert reference["name"] == secret["metadata"]["name"]
            if reference["key"] in secret["stringData"]:
                env[one["name"]] = secret["stringData"][reference["key"]]
            else:
                assert reference["optional"], one["name"]
    return env


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    started = Servers(tmp_path_factory.mktemp("servers"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def roles(servers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("roles")
    made = {}
    for role, deployment in ROLES.items():
        only = container(deployment)
        made[role] = Process(role, only["args"], variables(deployment), servers, folder, free_port())
    with ending(made.values()):
        yield made


def scaler(servers, role="orchestrator", trigger=0, **other):
    """What KEDA would say of a trigger as rendered, with the address of a real Pulsar."""
    written = of_kind(OBJECTS, "ScaledObject")[role]["spec"]["triggers"][trigger]["metadata"]
    asked = {"metadata": written | {"adminURL": servers.admin} | other}
    return run(TOOLS / "pulsarscaler", stdin=json.dumps(asked))


def told(servers, **which):
    answered = scaler(servers, **which)
    assert answered.returncode == 0, answered.stderr
    return json.loads(answered.stdout)


def probed(process, probe, within):
    """Asks a probe as it is written until it is content."""
    asks = probe["httpGet"]
    assert asks["port"] == "http"
    return until(
        f"{process.name} is not well at {asks['path']}: {process.log()}",
        within,
        lambda: process.get(asks["path"], timeout=probe["timeoutSeconds"])[0] == 200,
    )


def scraped(process):
    status, text = process.get("/metrics", timeout=8)
    assert status == 200
    return text


def test_the_scaler_sees_every_request_that_waits(servers, roles):
    asking = roles["orchestrator"]
    for number in range(REQUESTS):
        asking.command("ask", "--detach", "--pattern", "react", f"What is known about supplier {number}?")
    seen = until("not all requests are counted", 10, lambda: (now := told(servers))["value"] == REQUESTS and now)
    concurrency = int(asking.env["AGENTFLEET_CONCURRENCY"])
    assert seen == {"value": REQUESTS, "target": concurrency, "active": True}


def test_the_scaler_cannot_be_wrong_in_silence(servers):
    """A topic or subscription that is not there is an error, not a zero."""
    for wrong in ({"subscription": "orchestrators"}, {"topic": "persistent://public/default/agent-requests"}):
        assert scaler(servers, **wrong).returncode != 0


def test_every_role_becomes_ready_by_its_probes(roles):
    for process in roles.values():
        process.start()
    for role, process in roles.items():
        only = container(ROLES[role])
        startup, ready = only["startupProbe"], only["readinessProbe"]
        probed(process, startup, startup["periodSeconds"] * startup["failureThreshold"])
        probed(process, ready, ready["periodSeconds"] * 2)
        probed(process, only["livenessProbe"], only["livenessProbe"]["timeoutSeconds"])


def test_the_doctor_of_helm_test_finds_no_fault(servers, tmp_path):
    (pod,) = of_kind(OBJECTS, "Pod").values()
    only = container(pod)
    doctor = Process("doctor", only["args"], variables(pod), servers, tmp_path, free_port())
    said = doctor.command(*only["args"])
    assert "BAD" not in said


def test_the_fleet_works_and_the_scaler_sees_nothing_left(servers, roles):
    asking = roles["orchestrator"]
    asking.command("ask", "--detach", "--pattern", "supervisor", "Compare cost, speed and safety of two suppliers")

    def over():
        sessions = json.loads(asking.command("sessions", "list", "--json"))
        return len(sessions) == REQUESTS + 1 and all(one["state"] == "answered" for one in sessions)

    until("runs do not end", 60, over)
    until("the scaler still sees work", 20, lambda: told(servers)["value"] == 0)
    assert told(servers)["active"] is False
    assert told(servers, role="graph-writer")["target"] == 1000


def test_every_metric_that_is_told_is_one_of_the_source_with_its_labels(roles, tmp_path):
    known, seen, text = of_source(), {}, ""
    scrapes = {}
    for role, process in roles.items():
        until(f"{role} tells no backlog", 20, lambda at=process: "agentfleet_backlog{" in scraped(at))
        scrapes[role] = scraped(process)
        text += scrapes[role]
    told_kinds = kinds(text)
    for name, labels, _ in series(text):
        metric = base(name)
        kind, has = known[metric]
        assert told_kinds[metric] == kind, metric
        assert set(labels) - {"le"} <= has, metric
        seen.setdefault(metric, set()).update(labels)
    did = {"steps_total", "deliveries_total", "model_call_seconds", "graph_messages_total", "fan_ins_total", "backlog", "backlog_age_seconds"}
    assert {f"agentfleet_{name}" for name in did} <= set(seen)
    # Values of labels that rules compare with are those the fleet writes.
    pairs = {(base(name), label, value) for name, labels, _ in series(text) for label, value in labels.items()}
    for metric, label, value in [
        ("agentfleet_backlog", "queue", "agent-request/orchestrator"),
        ("agentfleet_backlog", "queue", "explainability/aggregator"),
        ("agentfleet_backlog", "queue", "explainability/graph-writer"),
        ("agentfleet_backlog_by_state", "queue", "agent-request/orchestrator"),
        ("agentfleet_backlog_by_state", "state", "ready"),
        ("agentfleet_backlog_by_state", "state", "delayed"),
        ("agentfleet_deliveries_total", "subscription", "orchestrator"),
        ("agentfleet_deliveries_total", "subscription", "aggregator"),
        ("agentfleet_in_flight", "subscription", "orchestrator"),
    ]:
        assert (metric, label, value) in pairs
    the_dashboard_shows(scrapes, tmp_path)


def the_dashboard_shows(scrapes, folder):
    """Prometheus evaluates every query of the dashboard on what the roles told, and finds something
    wherever they told all that it asks for."""
    inputs, names = [], set()
    for role, text in scrapes.items():
        for name, labels, value in series(text):
            names.add(name)
            inside = "".join(f', {label}="{content}"' for label, content in labels.items())
            grows = kinds(text).get(base(name)) != "gauge"
            inputs.append({
                "series": f'{name}{{instance="{role}", namespace="agents"{inside}}}',
                "values": f"0+{value}x20" if grows else f"{value}x20",
            })
    cases = []
    for title, query in QUERIES:
        if set(used(query)) <= names:
            cases.append({"expr": f"count({concrete(query)}) >= bool 1", "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": 1}]})
    assert len(cases) > len(QUERIES) * 0.6, "most of the dashboard has nothing to show"
    tests = {"rule_files": [], "evaluation_interval": "1m", "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": cases}]}
    (folder / "panels_test.yaml").write_text(yaml.safe_dump(tests))
    succeed(TOOLS / "promtool", "test", "rules", folder / "panels_test.yaml")
    # And no alert of a fleet that works asks for a series that no role tells at all.
    unheard = {name for rule in RULES for name in used(rule["expr"])} - names
    assert {base(name) for name in unheard} <= {
        "agentfleet_model_errors_total",
        "agentfleet_receive_failures_total",
        "agentfleet_attempts_lost_total",
        "agentfleet_redeliveries_answered_total",
        "agentfleet_tool_call_seconds",
    }


def test_what_is_put_off_is_no_work_for_the_scaler(servers, roles):
    """A pattern that only a newer worker can run: the request comes straight from the queue and is put off."""
    orchestrator = roles["orchestrator"]
    item = orchestrator.folder / "pattern.json"
    item.write_text(json.dumps({"name": "tree-of-thoughts"}))
    orchestrator.command("config", "put", "agent-pattern", "tree-of-thoughts", item)
    request = {"question": "Which step first?", "pattern": "tree-of-thoughts", "session_id": "put-off"}
    publish(servers, "agent-request", request)

    def put_off():
        lines = [line for role in roles.values() for line in role.log().splitlines()]
        return any('"message":"put back"' in line and '"session":"put-off"' in line for line in lines)

    until("it was not put off", 30, put_off)
    # Its place among the delayed is the second trigger of a fleet that may sleep. It need not be alone
    # there: of a message that came twice, the second waits until the first is done.
    until("nothing waits for its time", 10, lambda: told(servers, trigger=1)["value"] >= 1)
    until("the request is counted twice", 10, lambda: told(servers)["value"] == 0)
    assert told(servers)["active"] is False
    assert told(servers, trigger=1)["active"] is True
    assert told(servers, trigger=2)["value"] == 0
    # The roles tell it apart, too.
    queue = 'queue="agent-request/orchestrator"'
    off = re.compile(f'^agentfleet_backlog_by_state{{{queue},state="delayed"}} [1-9]', re.MULTILINE)
    until("no role tells what is put off", 30, lambda: off.search(scraped(orchestrator)))
    assert f'agentfleet_backlog_by_state{{{queue},state="ready"}} 0\n' in scraped(orchestrator)
    assert orchestrator.child.poll() is None


def publish(servers, topic, message):
    """Publishes as any producer may."""
    body = json.dumps({"producerName": "test", "messages": [{"payload": json.dumps(message)}]}).encode()
    url = f"{servers.admin}/topics/persistent/public/default/{topic}"
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(asked, timeout=10) as answer:
        said = json.loads(answer.read())
    assert not any(result.get("errorCode") for result in said["messagePublishResults"]), said


def test_every_role_drains_within_its_time(roles):
    for process in roles.values():
        process.terminate()
    for role, process in roles.items():
        deployment = ROLES[role]["spec"]["template"]["spec"]
        sleep = container(ROLES[role]).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        code = process.ended(deployment["terminationGracePeriodSeconds"] - sleep)
        assert code == 0, process.log()


def thinking(servers, folder, model, grace):
    """The orchestrator of the chart with a real provider and its key, in the midst of a step."""
    sets = (
        'model="openai:held"',
        'modelBaseUrl="http://model:8000/v1"',
        'secrets.values.OPENAI_API_KEY="model-word"',
        f"orchestrator.graceSeconds={grace}",
        # By topics of its own: nobody else works them.
        f'broker.topics={{"agent-request":"held-{grace}"}}',
        f'records.url="postgres://fleet@postgres:5432/fleet?schema=held_{grace}"',
    )
    objects = rendered(LIVE, sets=sets)
    deployment = of_kind(objects, "Deployment")["orchestrator"]
    only = container(deployment)
    process = Process("held", only["args"], variables(deployment, objects), servers, folder, free_port(), model)
    session = process.command("ask", "--detach", "--pattern", "react", "How long is a while?").split()[0]
    process.start()
    until("the model is not asked", 30, lambda: model.asked)
    assert model.asked[0] == {"key": "Bearer model-word", "model": "held"}
    assert 'agentfleet_in_flight{subscription="orchestrator"} 1' in scraped(process)
    return process, session, deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


def test_a_stopping_pod_ends_the_step_it_is_in(servers, tmp_path):
    with Model("It is as long as it takes.") as model:
        process, session, patience = thinking(servers, tmp_path, model, grace=30)
        with ending([process]):
            process.terminate()
            until("it does not say that it stops", 10, lambda: "Stopping" in process.log())
            assert process.get("/health/live")[0] == 200, "it must be alive while it drains"
            model.release.set()
            code = process.ended(patience)
            assert code == 0, process.log()
            shown = json.loads(process.command("sessions", "show", session, "--json"))
            assert shown["state"] == "answered", shown


def test_a_stopping_pod_hands_back_what_takes_longer_than_its_grace(servers, tmp_path):
    with Model("Too late.") as model:
        process, session, patience = thinking(servers, tmp_path, model, grace=1)
        with ending([process]):
            process.terminate()
            code = process.ended(patience)
            assert code == 0, process.log()
            waiting = {"topic": "persistent://public/default/held-1", "adminURL": servers.admin}
            until("the request is not back in the queue", 10, lambda: told(servers, **waiting)["value"] == 1)
            shown = json.loads(process.command("sessions", "show", session, "--json"))
            assert shown["state"] != "answered", shown


def test_variables_of_services_would_be_refused(roles):
    """Why pods have no service links: Kubernetes would set these for a Service called `agentfleet`."""
    refused = run(BIN, "settings", env=roles["gateway"].env | {"AGENTFLEET_PORT": "tcp://10.0.0.1:8700"})
    assert refused.returncode == 2
    assert "AGENTFLEET_PORT" in refused.stderr


def test_every_service_of_the_compose_file_becomes_ready_and_drains(servers, tmp_path):
    started = []
    with ending(started):
        for name in sorted(OURS):
            service = COMPOSE["services"][name]
            # What has no value is of the user's environment; what has a default takes it.
            written = {key: str(value) for key, value in service["environment"].items() if value is not None}
            written = {key: value if not value.startswith("${") else value[2:-1].split(":-")[1] for key, value in written.items()}
            started.append(Process(name, service["command"], written, servers, tmp_path, free_port()).start())
        for process in started:
            until(f"{process.name} is not ready: {process.log()}", 60, lambda at=process: at.get("/health/ready", 8)[0] == 200)
            assert "agentfleet_backlog" in scraped(process)
        for process in started:
            process.terminate()
        for process in started:
            patience = int(COMPOSE["services"][process.name]["stop_grace_period"].removesuffix("s"))
            grace = int(process.env["AGENTFLEET_GRACE"].removesuffix("s"))
            assert patience > (3 if process.args == ["up"] else 2) * grace
            code = process.ended(patience)
            assert code == 0, process.log()
