"""The metrics of the fleet: as the source names them, as a process tells them, as queries use them."""

import re

from conftest import ROOT

SOURCE = ROOT / "services/runtime/src/metrics.rs"
# What Prometheus makes of a histogram.
PARTS = ("_bucket", "_sum", "_count")
# Labels that Prometheus and Kubernetes add.
TARGET = {"namespace", "instance", "job", "pod", "role"}


def of_source():
    """Names and labels in the source: {name: (kind, labels)}."""
    text = SOURCE.read_text()
    constants = dict(re.findall(r'const (\w+): &str = "(agentfleet_\w+)";', text))
    found = {}
    for kind, call in re.findall(r"\b(?<!describe_)(counter|gauge|histogram)!\(((?:[^()]|\([^()]*\))*)\)", text):
        name, *_ = re.split(r"[,\s]", call.strip(), maxsplit=1)
        labels = set(re.findall(r'"(\w+)" =>', call))
        known = found.setdefault(constants[name], (kind, set()))
        assert known[0] == kind, f"{constants[name]} is {known[0]} and {kind}"
        known[1].update(labels)
    assert set(found) == set(constants.values()), "a metric is never fed"
    return found


def series(text):
    """The samples of a scrape: name, labels and value."""
    for line in text.splitlines():
        sample = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if sample and not line.startswith("#"):
            yield sample[1], dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2] or "")), float(sample[3])


def kinds(text):
    """The metrics of a scrape and their kinds."""
    return dict(re.findall(r"(?m)^# TYPE (\w+) (\w+)$", text))


def base(name):
    """The metric of a series."""
    for part in PARTS:
        if name.endswith(part) and name not in of_source():
            return name.removesuffix(part)
    return name


def used(expression):
    """What a query asks for: {series name: labels}; grouping labels belong to every one of it."""
    grouped = set()
    for labels in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", expression):
        grouped |= {label.strip() for label in labels.split(",")} - {""}
    found = {}
    for name, matchers in re.findall(r"(agentfleet_\w+)(?:\{([^}]*)\})?", expression):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        found.setdefault(name, set()).update(labels | grouped)
    return found


def wrong(expression):
    """What a query asks for that the fleet does not tell."""
    known, problems = of_source(), []
    for name, labels in used(expression).items():
        metric = base(name)
        if metric not in known:
            problems.append(f"no metric `{name}`")
            continue
        kind, has = known[metric]
        if (kind == "histogram") != (name != metric):
            problems.append(f"`{name}` is no series of a {kind}")
        has = has | TARGET | ({"le"} if name.endswith("_bucket") else set())
        problems += [f"`{name}` has no label `{label}`" for label in labels - has]
    return problems
