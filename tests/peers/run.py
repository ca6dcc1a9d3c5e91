#!/usr/bin/env python3
"""Runs Agentfleet's benchmark and three other systems on the same steps, and prints them side by side.

    tests/peers/run.py [PART ...]     of the benchmark's parts, `steps` and `supervisor` are compared (both); others
                                      are run as `make bench` runs them
    --seconds 10                      how long a peer works at each number of sessions
    --json FILE                       writes the figures there too

A figure divides by counted work: after each measurement the peer's own store must tell of exactly the runs and
steps that were asked for. `docs/performance.md` says how the comparison is made. Linux only: it reads /proc.
"""

import argparse
import ctypes
import http.client
import json
import os
import re
import select
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BENCH = os.path.join(ROOT, "target", "release", "bench")
COMPARED = ["steps", "supervisor"]
SESSIONS = [1, 16, 64]
# What the benchmark does too: steps of a run, steps before a measurement, supervisors that are asked for one by one.
STEPS_A_RUN = 20
WARM_UP = 2_000
SUPERVISORS = 50
# What is waited for beyond the measured time: a start, the warm-up, the last runs.
PATIENCE = 120
TICKS = os.sysconf("SC_CLK_TCK")
QUIET = {
    "DO_NOT_TRACK": "1",
    "RESTATE_DISABLE_TELEMETRY": "true",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Failure(Exception):
    """What the measurement cannot go on after, in words for whoever started it."""


def environment(**more):
    """This process's, without proxies and telemetry: nothing here leaves the machine."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, **QUIET, **more}


def end_with_this_process():
    """Even if that is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Process:
    """A process that is ended with the measurement. Its own session keeps Ctrl-C from it, so that it is ended once."""

    def __init__(self, name, command, folder, speaks=True, **more):
        self.name = name
        self.log = os.path.join(folder, f"{name}.log")
        with open(self.log, "wb") as log:
            self.popen = subprocess.Popen(
                command, cwd=folder, env=environment(**more), stdin=subprocess.PIPE, stdout=subprocess.PIPE if speaks else log,
                stderr=log, start_new_session=True, preexec_fn=end_with_this_process)
        self.pid = self.popen.pid
        self.unread = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.popen.terminate()
        try:
            self.popen.wait(10)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self.popen.stdin.close()
        if self.popen.stdout:
            self.popen.stdout.close()

    def failure(self, what):
        with open(self.log, errors="replace") as log:
            said = "".join(log.readlines()[-20:])
        return Failure(f"{self.name} {what}; it said:\n{said}")

    def line(self, seconds, meanwhile=lambda: None):
        """What it prints next, or None if it has ended its output; `meanwhile` is called five times a second."""
        limit = time.monotonic() + seconds
        out = self.popen.stdout.fileno()
        while b"\n" not in self.unread:
            if time.monotonic() > limit:
                raise self.failure(f"has not answered for {seconds:.0f} s")
            meanwhile()
            if select.select([out], [], [], 0.2)[0]:
                read = os.read(out, 65_536)
                if not read:
                    return None
                self.unread += read
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode()

    def answer(self, seconds, meanwhile=lambda: None):
        line = self.line(seconds, meanwhile)
        if line is None:
            raise self.failure("has ended")
        return json.loads(line)

    def tell(self, **what):
        try:
            self.popen.stdin.write(json.dumps(what).encode() + b"\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            raise self.failure("has ended") from None

    def processor_ms(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            # The name of the program, in brackets, may have blanks.
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / TICKS

    def memory_mib(self):
        try:
            with open(f"/proc/{self.pid}/status") as status:
                resident = re.search(r"^VmRSS:\s+(\d+)", status.read(), re.M)
        except FileNotFoundError:
            return 0
        return int(resident[1]) / 1024 if resident else 0


class Peer:
    """A system that is compared with. `ONE` has what its store holds after one run, by what is counted."""

    def __init__(self, folder, stack):
        self.folder = folder
        self.stack = stack
        self.most_mib = 0
        self.asked = {}
        self.start()

    def process(self, name, command, **more):
        return self.stack.enter_context(Process(name, command, self.folder, **more))

    def remember_memory(self):
        self.most_mib = max(self.most_mib, sum(process.memory_mib() for process in self.resident))

    def ask(self, work, sessions, **much):
        """Has it work, and fails unless its store tells of exactly that. Returns (runs' times, seconds, processor ms)."""
        used = sum(process.processor_ms() for process in self.processes)
        self.caller.tell(work=work, sessions=sessions, **much)
        did = self.caller.answer(much.get("seconds", 0) + PATIENCE, self.remember_memory)
        used = sum(process.processor_ms() for process in self.processes) - used
        self.check(work, len(did["times"]))
        return did["times"], did["took"], used

    def check(self, work, runs):
        for what, many in self.ONE[work].items():
            self.asked[what] = self.asked.get(what, 0) + runs * many
        # A store may be told of the last ends after the callers are.
        limit = time.monotonic() + 10
        while (counted := self.count()) != self.asked and time.monotonic() < limit:
            time.sleep(0.1)
        if counted != self.asked:
            raise Failure(f"the measurement is void: {self.NAME} was asked for {self.asked}, and its store tells of {counted}")


def counted(database, queries):
    """Each query's number, from an SQLite file."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)
    try:
        return {what: connection.execute(query).fetchone()[0] for what, query in queries.items()}
    finally:
        connection.close()


class LangGraph(Peer):
    NAME = "LangGraph"
    # A checkpoint is of all that runs at once: a supervisor has one for its fan-out, one for the ends of all its
    # subagents, one for its synthesis; each subagent has its own beside them.
    ONE = {
        "steps": {"threads": 1, "checkpoints": STEPS_A_RUN, "of subagents": 0},
        "supervisor": {"threads": 1, "checkpoints": 3, "of subagents": 4 * 2},
    }

    def start(self):
        self.database = os.path.join(self.folder, "langgraph.db")
        self.caller = self.process("LangGraph", [PYTHON, os.path.join(HERE, "langgraph_peer.py"), self.database])
        self.processes = self.resident = [self.caller]
        self.caller.answer(PATIENCE)

    def count(self):
        # Steps -1 and 0 are of the input.
        steps = "SELECT count(*) FROM checkpoints WHERE json_extract(CAST(metadata AS TEXT), '$.step') > 0"
        return counted(self.database, {
            "threads": "SELECT count(DISTINCT thread_id) FROM checkpoints",
            "checkpoints": f"{steps} AND checkpoint_ns = ''",
            "of subagents": f"{steps} AND checkpoint_ns <> ''",
        })


class Dbos(Peer):
    NAME = "DBOS"
    ONE = {
        "steps": {"workflows": 1, "steps": STEPS_A_RUN},
        "supervisor": {"workflows": 1 + 4, "steps": 1 + 4 * 2 + 1},
    }

    def start(self):
        self.database = os.path.join(self.folder, "dbos.db")
        self.caller = self.process("DBOS", [PYTHON, os.path.join(HERE, "dbos_peer.py"), self.database])
        self.processes = self.resident = [self.caller]
        self.caller.answer(PATIENCE)

    def count(self):
        # Starts and joins of subagents are in the same table.
        return counted(self.database, {
            "workflows": "SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'",
            "steps": """SELECT count(*) FROM operation_outputs WHERE error IS NULL
                        AND function_name IN ('step', 'decompose', 'synthesise')""",
        })


def free_ports(many):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(many)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Restate(Peer):
    NAME = "Restate"
    ONE = Dbos.ONE

    def start(self):
        ingress, self.admin, nodes = free_ports(3)
        system = os.uname()
        machine = {"x86_64": "x64", "aarch64": "arm64"}.get(system.machine, system.machine)
        program = os.path.join(NODE_MODULES, "@restatedev", f"restate-server-{system.sysname.lower()}-{machine}", "bin", "restate-server")
        if not os.path.exists(program):
            raise Failure(f"Restate has no server for this machine: {program} is missing")
        server = self.process(
            "Restate's server",
            [program, "--no-logo", "--bind-ip", "127.0.0.1", "--listen-mode", "tcp", "--base-dir", os.path.join(self.folder, "data")],
            speaks=False,
            RESTATE_INGRESS__BIND_PORT=str(ingress),
            RESTATE_ADMIN__BIND_PORT=str(self.admin),
            RESTATE_BIND_PORT=str(nodes),
            RESTATE_LOG_SERVER__ROCKSDB_DISABLE_WAL_FSYNC="false",
        )
        node = {"NODE_PATH": NODE_MODULES, "NODE_ENV": "production", "RESTATE_LOGGING": "WARN"}
        service = self.process("Restate's service", ["node", os.path.join(HERE, "restate_service.cjs")], **node)
        port = service.answer(PATIENCE)["port"]
        self.until_ready(server, port)
        self.caller = self.process("Restate's caller", ["node", os.path.join(HERE, "restate_caller.cjs"), str(ingress)], **node)
        self.caller.answer(PATIENCE)
        # The callers of the others are in their process. Of this one's the memory is not counted.
        self.processes = [server, service, self.caller]
        self.resident = [server, service]

    def until_ready(self, server, port):
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                return self.post("/deployments", {"uri": f"http://127.0.0.1:{port}"})
            except (OSError, http.client.HTTPException) as error:
                if server.popen.poll() is not None or time.monotonic() > limit:
                    raise server.failure(f"does not take the service: {error}") from None
                time.sleep(0.1)

    def post(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=PATIENCE)
        try:
            headers = {"content-type": "application/json", "accept": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            said = response.read().decode()
            if response.status >= 300:
                raise http.client.HTTPException(f"{response.status} {said}")
            return json.loads(said)
        finally:
            connection.close()

    def count(self):
        def number(query):
            return self.post("/query", {"query": query})["rows"][0]["n"]

        # The notification is the result of a `ctx.run`.
        return {
            "workflows": number("SELECT count(*) AS n FROM sys_invocation WHERE status = 'completed' AND completion_result = 'success'"),
            "steps": number("SELECT count(*) AS n FROM sys_journal WHERE entry_type = 'Notification: Run'"),
        }


PEERS = [Restate, LangGraph, Dbos]


class Teller:
    """Says how far it is."""

    def __init__(self):
        self.began = time.monotonic()

    def __call__(self, text):
        at = int(time.monotonic() - self.began)
        print(f"{at // 60:3d}:{at % 60:02d}  {text}", flush=True)


def measured(peer_class, parts, seconds, tell):
    """A peer's figures. Each measurement has a store of its own, as each of the benchmark's has."""
    figures = {"memory": 0}

    def measure(work, sessions, **much):
        with tempfile.TemporaryDirectory(prefix="peers-") as folder, ExitStack() as stack:
            peer = peer_class(folder, stack)
            peer.ask("steps", 16, runs=WARM_UP // STEPS_A_RUN)
            did = peer.ask(work, sessions, **much)
            figures["memory"] = max(figures["memory"], peer.most_mib)
            return did

    for sessions in SESSIONS if "steps" in parts else []:
        times, took, used = measure("steps", sessions, seconds=seconds)
        steps = len(times) * STEPS_A_RUN
        figures[f"steps/s {sessions}"] = steps / took
        figures[f"processor {sessions}"] = used / steps
        tell(f"{peer_class.NAME}, sessions at once: {sessions}; {steps} steps, {steps / took:.0f} a second")
    if "supervisor" in parts:
        times, _, _ = measure("supervisor", 1, runs=SUPERVISORS)
        figures["supervisor"] = statistics.median(times) * 1000
        tell(f"{peer_class.NAME}, a supervisor: median {figures['supervisor']:.1f} ms")
    return figures


def agentfleet(parts, tell):
    """Agentfleet's figures, from what its benchmark prints. It counts its work itself."""
    figures = {"memory": 0}
    columns = None
    with tempfile.TemporaryDirectory(prefix="peers-") as folder, ExitStack() as stack:
        bench = stack.enter_context(Process("Agentfleet", [BENCH, *parts], folder, TMPDIR=folder))

        def remember_memory():
            figures["memory"] = max(figures["memory"], bench.memory_mib())

        while (line := bench.line(600, remember_memory)) is not None:
            cells = re.split(r"\s{2,}", line.strip())
            supervisor = re.search(r"median ([\d.]+)(µs|ms|s),", line)
            if cells[0] == "sessions":
                columns = cells
            elif columns and cells[0].isdigit():
                row = dict(zip(columns, map(float, cells)))
                sessions = int(row["sessions"])
                figures[f"steps/s {sessions}"] = row["steps/s"]
                figures[f"processor {sessions}"] = row["processor ms"]
                tell(f"Agentfleet, sessions at once: {sessions}; {row['steps']:.0f} steps, {row['steps/s']:.0f} a second")
            elif supervisor:
                figures["supervisor"] = float(supervisor[1]) * {"µs": 0.001, "ms": 1, "s": 1000}[supervisor[2]]
                tell(f"Agentfleet, a supervisor: median {figures['supervisor']:.1f} ms")
        if bench.popen.wait() != 0:
            raise bench.failure(f"has failed with exit code {bench.popen.returncode}")
    missing = [key for key in keys(parts) if key not in figures]
    if missing:
        raise Failure(f"what `{BENCH}` prints has no {', '.join(missing)}")
    return figures


# Of a figure: which part has it, what stands above it, and how it is written.
COLUMNS = {
    **{f"steps/s {n}": ("steps", ("steps/s", f"at {n}"), ",.0f") for n in SESSIONS},
    "supervisor": ("supervisor", ("supervisor", "of 4, ms"), ",.1f"),
    **{f"processor {n}": ("steps", ("processor", f"ms at {n}"), ",.2f") for n in SESSIONS},
    "memory": (None, ("memory", "MiB"), ",.0f"),
}


def keys(parts):
    return [key for key, (part, _, _) in COLUMNS.items() if part is None or part in parts]


def table(shown, rows, form=None):
    """Prints rows, which are (name, figures)."""
    width = max(len(name) for name, _ in rows) + 2
    for line in (0, 1):
        print(" " * width + "".join(f"{COLUMNS[key][1][line]:>12}" for key in shown))
    for name, figures in rows:
        print(f"{name:<{width}}" + "".join(f"{figures[key]:>12{form or COLUMNS[key][2]}}" for key in shown))


def compare(parts, seconds):
    tell = Teller()
    tell(f"Agentfleet, {', '.join(peer.NAME for peer in PEERS)}, Agentfleet again: about {len(parts) * 2 + 1} minutes")
    first = agentfleet(parts, tell)
    figures = {peer.NAME: measured(peer, parts, seconds, tell) for peer in PEERS}
    last = agentfleet(parts, tell)
    shown = keys(parts)
    ours = {key: (first[key] + last[key]) / 2 for key in shown}
    ratios = {name: {key: ours[key] / theirs[key] for key in shown} for name, theirs in figures.items()}
    drift, drifted = max((abs(first[key] - last[key]) / ours[key], key) for key in shown)

    print("\nThe same steps, each durable before the next. Every figure divides by work counted in the system's own store.")
    table(shown, [("Agentfleet", ours), *figures.items()])
    print("\nAgentfleet, as a ratio to each. Of steps/s more is better, of all else less. Processor: ms a step.")
    table(shown, [(f"to {name}", ratio) for name, ratio in ratios.items()], ".2f")
    print(f"\nAgentfleet ran first and last, and its row is the mean; most apart were its two figures of "
          f"`{drifted}`, by {drift:.0%}.")
    return {"figures": {"Agentfleet": ours, **figures}, "ratios": ratios, "first": first, "last": last}


def main():
    parser = argparse.ArgumentParser(description="Agentfleet beside other systems, on the same steps")
    parser.add_argument("parts", nargs="*", metavar="PART", default=COMPARED)
    parser.add_argument("--seconds", type=float, default=10, help="how long a peer works at each number of sessions (10)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    asked = parser.parse_args()
    # As a failure: what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parts = [part for part in COMPARED if part in asked.parts]
    others = [part for part in asked.parts if part not in COMPARED]
    if not parts:
        sys.exit(f"nothing of `{' '.join(others)}` is compared with peers: choose from {', '.join(COMPARED)}")
    if not os.access(BENCH, os.X_OK):
        sys.exit(f"there is no benchmark at {BENCH}: `make bench WITH=peers` builds it")
    global PYTHON, NODE_MODULES
    installed = subprocess.run([os.path.join(HERE, "install.sh")], stdout=subprocess.PIPE, text=True)
    if installed.returncode:
        sys.exit(installed.returncode)
    PYTHON, NODE_MODULES = installed.stdout.split("\n")[:2]
    try:
        if others:
            ran = subprocess.run([BENCH, *others])
            if ran.returncode:
                sys.exit(ran.returncode)
            print()
        results = compare(parts, asked.seconds)
    except Failure as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:
        sys.exit(130)
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
