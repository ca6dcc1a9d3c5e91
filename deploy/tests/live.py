"""Real servers and real roles for tests: each on loopback and a free port, each ended by its id."""

import contextlib
import ctypes
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

from conftest import BIN, DEPLOY, succeed

# What starts here ends with us, however that comes about.
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def with_us():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def until(what, patience, look):
    """Looks again and again until there is something, and returns it."""
    deadline = time.monotonic() + patience
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"after {patience} s: {what}"
        time.sleep(0.1)


def get(url, timeout=5.0):
    """Status and text of an answer; none if nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return None, ""


class Servers:
    """Pulsar, PostgreSQL and Fuseki, by the scripts of deploy/."""

    def __init__(self, folder):
        self.folder = folder
        begun = {name: self._run(name, "start") for name in ("pulsar", "postgres", "fuseki")}
        said = {}
        for name, process in begun.items():
            out, _ = process.communicate(timeout=300)
            assert process.returncode == 0, f"{name} did not start: {out}"
            said[name] = out
        self.broker = re.search(r"service_url: (\S+)", said["pulsar"])[1]
        self.admin = re.search(r"admin_url: (\S+)", said["pulsar"])[1]
        documents = re.search(r"running: pid \d+, (\S+)", said["postgres"])[1]
        self.graph = re.search(r"running: pid \d+, (\S+)", said["fuseki"])[1]
        # By the names that chart and compose file give them.
        self.addresses = {
            "AGENTFLEET_BROKER": self.broker,
            "AGENTFLEET_BROKER_ADMIN": self.admin,
            # The password is another variable.
            "AGENTFLEET_RECORDS": re.sub(r":[^:@/]+@", "@", documents),
            "AGENTFLEET_GRAPH": self.graph,
        }

    def _run(self, name, verb):
        prefix = name.upper()
        env = os.environ | {
            f"{prefix}_DATA_DIR": str(self.folder / name),
            f"{prefix}_PORT": "0",
            # Should this process be killed, the servers end with it.
            "WITH_PID": str(os.getpid()),
        }
        if name == "pulsar":
            env["PULSAR_HTTP_PORT"] = "0"
        if name == "fuseki":
            env["FUSEKI_STORE"] = "mem"
        return subprocess.Popen(
            [DEPLOY / f"{name}.sh", verb], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def stop(self):
        for process in [self._run(name, "kill") for name in ("pulsar", "postgres", "fuseki")]:
            process.communicate(timeout=60)


class Process:
    """A container as it is written, as a process: its arguments and its variables, and nothing of ours
    but the addresses of servers, its own port, and where its volume lies."""

    def __init__(self, name, args, written, servers, folder, port, model=None):
        self.name, self.port = name, port
        self.folder = folder / f"{name}-{port}"
        self.folder.mkdir(parents=True)
        env = dict(written)
        for variable, address in servers.addresses.items():
            if variable in env:
                # What follows the address of a database is as written.
                env[variable] = address + "".join(env[variable].partition("?")[1:])
        if model:
            env["AGENTFLEET_BASE_URL"] = model.url
        env["AGENTFLEET_DATA"] = str(self.folder / "data")
        door = "AGENTFLEET_LISTEN" if args == ["up"] else "AGENTFLEET_HEALTH"
        if door in env:
            env[door] = f"127.0.0.1:{port}"
        self.env = env | {"PATH": "/usr/bin:/bin"}
        self.args = args
        self.child = None

    def start(self):
        with (self.folder / "log").open("w") as log:
            self.child = subprocess.Popen(
                [BIN, *self.args], env=self.env, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, preexec_fn=with_us
            )
        return self

    def log(self):
        return (self.folder / "log").read_text()

    def command(self, *args):
        """Another command with the same settings, to its end."""
        return succeed(BIN, *args, env=self.env, cwd=self.folder)

    def get(self, path, timeout=5.0):
        assert self.child.poll() is None, f"{self.name} ended by itself: {self.log()}"
        return get(f"http://127.0.0.1:{self.port}{path}", timeout)

    def terminate(self):
        self.child.send_signal(signal.SIGTERM)

    def ended(self, within):
        """Its exit code."""
        try:
            return self.child.wait(timeout=within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after its {within} s: {self.log()}") from None

    def kill(self):
        if self.child and self.child.poll() is None:
            self.child.kill()
            self.child.wait()




class Model:
    """A model behind the OpenAI protocol that thinks until it is let go."""

    def __init__(self, says):
        self.says, self.asked, self.release = says, [], threading.Event()
        model = self

        class Door(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model.asked.append({"key": self.headers["Authorization"], "model": body["model"]})
                model.release.wait()
                self.answer(body.get("stream", False))

            def answer(self, streams):
                message = {"role": "assistant", "content": model.says}
                choice = {"index": 0, "delta" if streams else "message": message, "finish_reason": "stop"}
                usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
                whole = {"id": "1", "object": "chat.completion", "created": 0, "model": "held", "choices": [choice], "usage": usage}
                text = json.dumps(whole)
                text = f"data: {text}\n\ndata: [DONE]\n\n" if streams else text
                # Who asked may have gone: that is what is tested.
                with contextlib.suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream" if streams else "application/json")
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release.set()
        self.server.shutdown()


@contextlib.contextmanager
def ending(processes):
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
