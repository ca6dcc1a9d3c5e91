"""Alerts and dashboard: Prometheus takes them, they ask only for what the fleet tells, and every alert
leads to what can be done about it."""

import json
import re

import pytest
import yaml
from conftest import DEPLOY, ROOT, TOOLS, run, succeed
from metrics import of_source, wrong

ALERTS = DEPLOY / "prometheus/alerts.yaml"
TESTS = DEPLOY / "prometheus/alerts_test.yaml"
DASHBOARD = json.loads((DEPLOY / "grafana/agentfleet.json").read_text())
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
NAMES = [rule["alert"] for rule in RULES]


def concrete(expression):
    """A query of the dashboard as Grafana would send it."""
    values = {"$namespace": ".*", "$__rate_interval": "5m", "$__range": "1h"}
    for variable, value in values.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


def test_prometheus_takes_rules_and_configuration():
    succeed(TOOLS / "promtool", "check", "rules", "--lint=all", "--lint-fatal", ALERTS)
    succeed(TOOLS / "promtool", "check", "config", "--lint=all", "--lint-fatal", DEPLOY / "prometheus/prometheus.yaml")


def test_alerts_fire_and_stay_silent_as_their_tests_say():
    succeed(TOOLS / "promtool", "test", "rules", TESTS)


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not():
    tests = [case for test in yaml.safe_load(TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in tests if case["exp_alerts"]}
    silent = {case["alertname"] for case in tests if not case["exp_alerts"]}
    assert fires == silent == set(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_a_rule_that_is_wrong_fails_its_test(tmp_path):
    """The rule tester must be able to say no."""
    broken = ALERTS.read_text().replace("> 100", "> 100000")
    assert broken != ALERTS.read_text()
    (tmp_path / "alerts.yaml").write_text(broken)
    (tmp_path / "alerts_test.yaml").write_text(TESTS.read_text())
    said = run(TOOLS / "promtool", "test", "rules", tmp_path / "alerts_test.yaml")
    assert said.returncode != 0
    assert "AgentfleetBacklogGrows" in said.stdout + said.stderr


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_asks_for_what_there_is_and_leads_to_its_runbook(rule):
    assert not wrong(rule["expr"])
    assert rule["labels"]["severity"] in {"critical", "warning"}
    file, anchor = rule["annotations"]["runbook"].split("#")
    headings = re.findall(r"(?m)^#+ (.+)$", (ROOT / file).read_text())
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert anchor in anchors, f"{file} has no section `{anchor}`"
    assert anchor == rule["alert"].lower()


def test_what_asks_for_too_much_is_noticed():
    assert wrong("sum by (session) (rate(agentfleet_steps_total[5m]))") == ["`agentfleet_steps_total` has no label `session`"]
    assert wrong('agentfleet_backlog{topic="x"}') == ["`agentfleet_backlog` has no label `topic`"]
    assert wrong("agentfleet_steps") == ["no metric `agentfleet_steps`"]
    assert wrong("rate(agentfleet_graph_lag_seconds[5m])") == ["`agentfleet_graph_lag_seconds` is no series of a histogram"]


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[f"{title}: {query[:40]}" for title, query in QUERIES])
def test_a_panel_asks_for_what_there_is(title, query):
    assert not wrong(query), title


def test_every_metric_of_the_fleet_is_on_the_dashboard():
    text = json.dumps(DASHBOARD)
    assert not [name for name in of_source() if name not in text]


def test_prometheus_can_parse_every_query_of_the_dashboard(tmp_path):
    rules = [{"record": f"panel:{index}", "expr": concrete(query)} for index, (_, query) in enumerate(QUERIES)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    succeed(TOOLS / "promtool", "check", "rules", tmp_path / "panels.yaml")


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    covered = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & covered, panel["title"]
        covered |= cells
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(?!__)(\w+)", json.dumps(DASHBOARD["panels"]))) <= variables
