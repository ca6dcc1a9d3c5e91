"""Clients in other languages against a fleet of real processes on real servers.

The clients know docs/protocol.md and none of the fleet's code. What is started here ends by its process
id, and if this process is killed, by itself.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid

import pulsar

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINARY = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "agentfleet"
RESPONSES = "persistent://public/default/agent-response"
COUNTED = "One two three four five six seven eight nine ten."
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
# Longest a client may take, in seconds: only a fault takes so long.
PATIENCE = 90


def script():
    """What the model says. It counts slowly, so that there is a middle in which things can happen."""
    words = [word + " " for word in COUNTED.split(" ")]
    words[-1] = words[-1].strip()
    pieces = ["Thought: I count.\nFinal Answer: ", *words]
    choice = '{"choice": "%s", "signal": "s"}'
    return {
        "rules": [
            {"operation": "task-type-classify", "text": choice % "general"},
            {"operation": "pattern-select", "text": choice % "react"},
            {"operation": "supervisor-decompose", "text": '{"thought": "t", "goals": ["left", "right"]}'},
            {"operation": "supervisor-review", "text": '{"decision": "answer", "signal": "s"}'},
            {"operation": "supervisor-synthesise", "pieces": words, "pause-ms": 50},
            {"operation": "agent-react", "contains": "slowly", "pieces": pieces, "pause-ms": 500},
            {"operation": "agent-react", "contains": "for ever", "pieces": ["Thought:", " hm"], "pause-ms": 86_400_000},
            {"text": "Thought: hm\nFinal Answer: At once."},
        ]
    }


class Servers:
    """The servers, and the roles of the fleet that work on them."""

    def __init__(self, work):
        self.work = work
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("AGENTFLEET_")}
        self.env.update(
            WITH_PID=str(os.getpid()),
            PULSAR_DATA_DIR=str(work / "pulsar"),
            PULSAR_PORT="0",
            PULSAR_HTTP_PORT="0",
            POSTGRES_DATA_DIR=str(work / "postgres"),
            POSTGRES_PORT="0",
            FUSEKI_DATA_DIR=str(work / "fuseki"),
            FUSEKI_PORT="0",
            FUSEKI_STORE="mem",
        )
        self.roles = []

    def start(self):
        names = ["pulsar", "postgres", "fuseki"]
        starting = [self.deploy(name, "start", subprocess.PIPE) for name in names]
        told = {}
        for name, process in zip(names, starting):
            told[name] = process.communicate()[0]
            if process.returncode != 0:
                raise RuntimeError(f"{name} does not start: {told[name]}")
        address = {name: re.search(r"(http|postgres)://\S+", text).group() for name, text in told.items()}
        self.url = re.search(r"service_url: (\S+)", told["pulsar"]).group(1)
        model = self.work / "script.json"
        model.write_text(json.dumps(script()))
        self.fleet_env = {
            **self.env,
            "AGENTFLEET_BROKER": self.url,
            "AGENTFLEET_BROKER_ADMIN": address["pulsar"],
            "AGENTFLEET_RECORDS": address["postgres"],
            "AGENTFLEET_GRAPH": address["fuseki"],
            "AGENTFLEET_MODEL": f"scripted:{model}",
            "AGENTFLEET_REPLY_TO": "replies-*,persistent://public/nowhere/*",
            # Short, so that what a killed worker held comes soon.
            "AGENTFLEET_LEASE": "2s",
        }
        self.orchestrator = self.role("orchestrator")
        self.role("aggregator")
        self.role("graph-writer")

    def deploy(self, name, what, out=None):
        return subprocess.Popen([ROOT / "deploy" / f"{name}.sh", what], env=self.env, stdout=out, text=True)

    def role(self, name, *args):
        """Starts a role, and waits until it works."""
        number = len(self.roles)
        env = {**self.fleet_env, "AGENTFLEET_DATA": str(self.work / f"{name}-{number}")}
        log = open(self.work / f"{name}-{number}.log", "w")
        process = subprocess.Popen([BINARY, name, *args], env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        self.roles.append(process)
        if "Working on" not in process.stdout.readline():
            raise RuntimeError(f"{name} does not start: {pathlib.Path(log.name).read_text()}")
        return process

    def run(self, *args):
        env = {**self.fleet_env, "AGENTFLEET_DATA": str(self.work / "command")}
        ran = subprocess.run([BINARY, *args], env=env, capture_output=True, text=True, timeout=PATIENCE)
        if ran.returncode != 0:
            raise RuntimeError(f"{args}: {ran.stderr}")
        return ran.stdout

    def stop(self):
        for role in self.roles:
            role.terminate()
        for role in self.roles:
            try:
                role.wait(30)
            except subprocess.TimeoutExpired:
                role.kill()
                role.wait()
            role.stdout.close()
        for stopping in [self.deploy(name, "kill", subprocess.DEVNULL) for name in ("pulsar", "postgres", "fuseki")]:
            stopping.wait()


def python(*args):
    return [sys.executable, "-u", str(HERE / "ask.py"), *args]


def java(*args):
    find = f"NAME=clients; source {ROOT}/deploy/server.sh; find_java"
    program = subprocess.run(["bash", "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    jars = os.environ.get("PULSAR_LIB_DIR", cache / "agentfleet" / "pulsar-lib")
    logs = [f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}", "-XX:TieredStopAtLevel=1"]
    return [program, *logs, "-cp", f"{jars}/*", str(HERE / "Ask.java"), *args]


class Client:
    """A client at work."""

    started = []

    def __init__(self, program, *args, url=None):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            program("--url", url or servers.url, *args), stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self.out = ""
        Client.started.append(self.process)

    def until(self, text):
        """Reads what it prints until there is `text` in it."""
        while text not in self.out:
            piece = os.read(self.process.stdout.fileno(), 4096).decode()
            if not piece:
                raise AssertionError(f"it ended without `{text}`: {self.out!r} {self.said()}")
            self.out += piece

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self):
        self.process.stdout.close()
        self.errors.close()

    def end(self):
        """Exit code, standard output and standard error."""
        try:
            rest, _ = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"no end: {self.out!r} {self.said()}")
        ended = self.process.returncode, self.out + rest, self.said()
        self.close()
        return ended


servers = None


def setUpModule():
    global servers
    work = pathlib.Path(tempfile.mkdtemp(prefix="clients-"))
    servers = Servers(work)
    try:
        servers.start()
    except BaseException:
        tearDownModule()
        raise


def tearDownModule():
    servers.stop()
    if os.environ.get("KEEP"):
        print("kept:", servers.work)
    else:
        shutil.rmtree(servers.work)


def own(name="run"):
    return f"{name}-{uuid.uuid4()}"


class Clients(unittest.TestCase):
    def tearDown(self):
        """Ends what a test that failed has left."""
        for process in Client.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        Client.started.clear()

    def asked(self):
        """Both clients, what each asks, and where its answer will be. The slower to start is first."""
        asked = []
        for program in (java, python):
            id = own(program.__name__)
            file = servers.work / f"{id}.txt"
            args = ["--id", id, "--pattern", "react", "--answer", str(file)]
            if program is python:
                args += ["--reply-to", "replies-" + id]
            asked.append((program, [*args, "Count slowly."], file))
        return asked

    def counting(self, asked):
        """Clients that have printed the first word and wait for the others."""
        clients = []
        for program, args, _ in asked:
            clients.append(Client(program, *args))
            clients[-1].until("One")
        return clients

    def answered(self, client, file):
        """What it printed, if it ended with the answer. What counts is what was printed last."""
        code, out, said = client.end()
        self.assertEqual(code, 0, said)
        self.assertEqual(file.read_text(), COUNTED)
        self.assertEqual(out.split("(again)\n")[-1], COUNTED + "\n")
        return out

    def test_an_answer_is_printed_as_it_comes(self):
        asked = self.asked()
        for client, (_, _, file) in zip(self.counting(asked), asked):
            self.assertNotIn("ten", client.out, "the model was still counting")
            self.assertEqual(self.answered(client, file), COUNTED + "\n")

    def test_a_broker_that_is_restarted_in_the_middle_costs_nothing(self):
        asked = self.asked()
        clients = self.counting(asked)
        self.assertEqual(servers.deploy("pulsar", "restart", subprocess.DEVNULL).wait(), 0)
        for client, (_, _, file) in zip(clients, asked):
            self.answered(client, file)

    def test_a_client_that_is_killed_goes_on_when_it_is_started_again(self):
        asked = self.asked()
        for client in self.counting(asked):
            client.kill()
        clients = [Client(program, *args) for program, args, _ in asked]
        for client, (_, _, file) in zip(clients, asked):
            self.answered(client, file)
        # It asked twice, and was answered once.
        program, args, file = asked[0]
        ends = [response["message_id"] for response, _ in self.responses(args[1]) if response["end_of_dialog"]]
        self.assertEqual(len(set(ends)), 1, ends)
        # What a reader has read it can read again, although the run is over.
        file.unlink()
        self.answered(Client(program, *args), file)

    def test_what_a_dead_worker_said_is_dropped(self):
        asked = self.asked()
        clients = self.counting(asked)
        servers.orchestrator.kill()
        servers.orchestrator = servers.role("orchestrator")
        for client, (_, _, file) in zip(clients, asked):
            self.assertIn("(again)", self.answered(client, file))

    def responses(self, id):
        """What the topic keeps of a request: each response with its properties."""
        client = pulsar.Client(servers.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
        reader = client.create_reader(RESPONSES, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            message = reader.read_next()
            if message.properties().get("id") == id:
                found.append((json.loads(message.data()), message.properties()))
        client.close()
        return found

    def test_a_topic_of_ones_own_gets_every_response_with_the_callers_properties(self):
        id = own("own")
        topic = "persistent://public/default/replies-" + id
        client = pulsar.Client(servers.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
        witness = client.subscribe(topic, "witness")
        args = ["--id", id, "--reply-to", topic, "--pattern", "supervisor", "--traceparent", TRACE, "Both sides?"]
        code, out, said = Client(python, *args).end()
        self.assertEqual((code, out), (0, COUNTED + "\n"), said)
        sessions, ended = set(), False
        while not ended:
            message = witness.receive(10_000)
            properties = message.properties()
            carried = {name: properties.get(name) for name in ("id", "traceparent", "reply-to")}
            self.assertEqual(carried, {"id": id, "traceparent": TRACE, "reply-to": topic})
            response = json.loads(message.data())
            sessions.add(response["session_id"])
            ended = response["end_of_dialog"]
        client.close()
        self.assertEqual(len(sessions), 3, "the root and two subagents")
        self.assertEqual(self.responses(id), [], "nothing of it on the fleet's own topic")

    def test_bad_requests_are_answered_and_parked_and_the_fleet_goes_on(self):
        large = b'{"question": "' + b"x" * (4 * 1024 * 1024) + b'"}'
        default = ["--listen", RESPONSES, "--reply-to"]
        table = [
            (python, b"why?", [], "invalid-json"),
            (java, b"why?", [], "invalid-json"),
            (python, b'{"question": 7}', [], "invalid-request"),
            (java, b'{"question": " "}', [], "empty-question"),
            (python, b'{"question": "q", "pattern": "oracle"}', [], "unknown-pattern"),
            (python, large, [], "message-too-large"),
            (python, b'{"question": "q"}', [*default, "secrets"], "reply-to-not-allowed"),
            (python, b'{"question": "q"}', [*default, "agent-request"], "reply-to-not-allowed"),
            # Also where the answer goes to a topic of the caller's.
            (python, b"[]", ["--reply-to", "replies-bad"], "invalid-request"),
            (python, b'{"question": "q"}', ["--compress", "ZSTD"], "dead-letter"),
            # More than the broker takes, once it is opened: it is parked all the same.
            (python, large * 3, ["--compress", "LZ4"], "message-too-large"),
        ]
        asked = []
        for at, (program, body, args, code) in enumerate(table):
            file = servers.work / f"bad-{at}"
            file.write_bytes(body)
            id = own(f"bad-{at}")
            client = Client(program, "--id", id, "--body", str(file), *args)
            asked.append((id, client, code))
        for id, client, code in asked:
            status, _, said = client.end()
            self.assertEqual(status, 1, said)
            self.assertIn(f"error {code}: ", said, id)
        # A topic that is allowed and cannot be there: the answer comes to the fleet's own.
        nowhere = "persistent://public/nowhere/replies"
        args = ["--id", own("lost"), *default, nowhere, "--pattern", "react", "At once?"]
        code, out, said = Client(python, *args).end()
        self.assertEqual((code, out), (0, "At once.\n"), said)
        parked = json.loads(servers.run("dlq", "list", "--json"))
        reasons = {one["properties"]["id"]: one["reason"] for one in parked}
        for id, _, code in asked:
            if code == "dead-letter":
                self.assertIn("ZSTD", reasons[id])
            else:
                self.assertTrue(reasons[id].startswith(code + ": "), reasons[id])

    def test_a_worker_that_hangs_ends_and_the_run_is_given_up_after_its_tries(self):
        servers.orchestrator.terminate()
        servers.orchestrator.wait(PATIENCE)
        client = Client(python, "--id", own("hangs"), "--pattern", "react", "Wait for ever.")
        short = ["--wall-limit", "3s", "--model-timeout", "2s", "--tool-timeout", "2s", "--grace", "1s"]
        for _ in range(2):
            hangs = servers.role("orchestrator", "--max-attempts", "2", *short)
            self.assertEqual(hangs.wait(PATIENCE), 6)
        servers.orchestrator = servers.role("orchestrator", "--max-attempts", "2")
        code, _, said = client.end()
        self.assertEqual(code, 1, said)
        self.assertIn("error gave-up: gave up after 2 tries", said)

    def test_the_example_of_the_readme_runs(self):
        text = (ROOT / "README.md").read_text()
        example = re.search(r"```python\n(.*?agent-request.*?)```", text, re.S).group(1)
        self.assertIn("pulsar://localhost:6650", example)
        example = example.replace("pulsar://localhost:6650", servers.url)
        ran = subprocess.run(
            [sys.executable, "-c", example], capture_output=True, text=True, timeout=PATIENCE
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("At once.", ran.stdout)


if __name__ == "__main__":
    unittest.main()
