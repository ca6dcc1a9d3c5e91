#!/usr/bin/env python3
"""Builds every test of the workspace and runs its binaries, and the scripts beside them, some at the same time.

    tests/run.py [NAME ...]       only what has one of these parts in its name
    TEST_JOBS=2                   how many run at the same time
    TEST_MINUTES=30               how long one may take before it counts as hanging

Most tests wait for servers and processes more than they compute, so running them one after the other leaves
the machine idle. The binaries of `tests/` are run module by module, each a process of its own, as
`program/kill`. Closing lines are printed at each end, and all that was said if it failed.
`cargo test` does the same one by one.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# What is no test binary: independent validators of traces, clients in other languages, the worked example as
# a user runs it, and chart, image, compose file, dashboard and alerts on real servers.
SCRIPTS = ["tests/validators/check.sh", "deploy/tests/check.sh", "tests/clients/check.sh", "tests/worked-example.sh"]
# The longest first, as far as that is known: what is not named here comes after them.
LONGEST_FIRST = [
    "storm", "simulator", *SCRIPTS[:2], "simulator_fan_in", "pulsar_failures", "upgrade", "kill", "control", "example", "audit",
    "small_model", "console/it", "approvals", "pulsar", "patterns", "interleavings", "migrate", "replicas", "graph/it",
]
JOBS = int(os.environ.get("TEST_JOBS", "2"))
MINUTES = int(os.environ.get("TEST_MINUTES", "30"))
EVERY = 60
SUMS = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")


def built():
    """What is run, as (name, folder of the crate, command)."""
    command = ["cargo", "test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        sys.exit(ran.returncode)
    found = []
    for line in ran.stdout.splitlines():
        said = json.loads(line)
        if said.get("reason") != "compiler-artifact" or not said.get("executable") or not said["profile"]["test"]:
            continue
        folder = os.path.dirname(said["manifest_path"])
        crate, target = os.path.basename(folder), said["target"]["name"]
        kind = said["target"]["kind"][0]
        if kind == "test" and crate == "tests":
            found += by_module(target, folder, said["executable"])
        else:
            name = f"{crate}/{target}" if kind == "test" else f"{crate} ({kind})"
            found.append((name, folder, [said["executable"]]))
    return found + [(script, ROOT, [os.path.join(ROOT, script)]) for script in SCRIPTS]


def by_module(target, folder, path):
    """The modules of a large binary, each with the tests that it has."""
    listed = subprocess.run([path, "--list", "--format", "terse"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    modules = {}
    for line in listed.stdout.splitlines():
        test, is_test, _ = line.partition(": test")
        if is_test:
            modules.setdefault(test.partition("::")[0], []).append(test)
    return [(f"{target}/{module}", folder, [path, "--exact", *tests]) for module, tests in modules.items()]


def order(part):
    name = part[0]
    for place, known in enumerate(LONGEST_FIRST):
        if name == known or name.split("/")[-1] == known:
            return place
    return len(LONGEST_FIRST)


def reasons(text):
    """What a failed part said of why: its panics, or else its last lines."""
    lines = text.splitlines()
    panics = [at for at, line in enumerate(lines) if "panicked at" in line]
    wanted = sorted({at + n for at in panics for n in range(12)}) if panics else range(len(lines) - 20, len(lines))
    return "\n".join(lines[at][:500] for at in wanted if 0 <= at < len(lines))


class Runner:
    def __init__(self, parts):
        self.waiting = sorted(parts, key=order)
        self.running = {}
        self.failed = []
        self.why = {}
        self.sums = [0, 0, 0]
        self.lock = threading.Lock()
        self.began = time.monotonic()

    def tell(self, text):
        at = int(time.monotonic() - self.began)
        print(f"{at // 60:3d}:{at % 60:02d}  {text}", flush=True)

    def work(self):
        while True:
            with self.lock:
                if not self.waiting:
                    return
                part = self.waiting.pop(0)
            self.run(*part)

    def run(self, name, folder, command):
        began = time.monotonic()
        environment = dict(os.environ)
        if name not in SCRIPTS:
            # As cargo does. A script may call cargo, which builds half of everything anew where it is set.
            environment["CARGO_MANIFEST_DIR"] = folder
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        with self.lock:
            self.running[process.pid] = (name, began)
        hangs = False
        try:
            said, _ = process.communicate(timeout=MINUTES * 60)
        except subprocess.TimeoutExpired:
            hangs = True
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
        text = said.decode(errors="replace")
        took = time.monotonic() - began
        results = [line for line in text.splitlines() if line.startswith("test result:")]
        with self.lock:
            del self.running[process.pid]
            for line in results:
                sums = SUMS.match(line)
                if sums:
                    self.sums = [sum(pair) for pair in zip(self.sums, map(int, sums.groups()))]
            is_script = name in SCRIPTS
            well = process.returncode == 0 and (results or is_script)
            if not well:
                self.failed.append(name)
                self.why[name] = reasons(text)
                print(text, flush=True)
                why = f"hangs: it was ended after {MINUTES} min" if hangs else f"exit code {process.returncode}"
                self.tell(f"FAILED {name}: {why}")
            closing = text.rstrip().splitlines()[-2:] if is_script and well else results
            for line in closing:
                self.tell(f"{name}  {took:.0f} s  {line}")

    def examples(self):
        """The examples in the documentation comments. Most crates have none, so only their sum is told."""
        ran = subprocess.run(["cargo", "test", "--workspace", "--doc"], stdout=subprocess.PIPE, text=True)
        counted = [tuple(map(int, sums.groups())) for sums in map(SUMS.match, ran.stdout.splitlines()) if sums]
        self.sums = [sum(column) for column in zip(self.sums, *counted)]
        self.tell(f"documentation examples  {sum(passed for passed, _, _ in counted)} passed")
        if ran.returncode:
            self.failed.append("documentation examples")
            self.why["documentation examples"] = ran.stdout

    def watch(self):
        """Names what runs, so that a run that is cut off says what it was at."""
        while True:
            time.sleep(EVERY)
            with self.lock:
                if not self.running and not self.waiting:
                    return
                now = time.monotonic()
                running = [f"{name} for {now - began:.0f} s" for name, began in self.running.values()]
                self.tell(f"running {', '.join(running)}; {len(self.waiting)} wait")

    def all(self):
        threading.Thread(target=self.watch, daemon=True).start()
        workers = [threading.Thread(target=self.work) for _ in range(JOBS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        # Once more at the end, where whoever reads a long log begins.
        for name in self.failed:
            print(self.why[name], flush=True)
            self.tell(f"FAILED {name}")

    def close(self):
        """The closing line of the whole run, in the words of every part's own."""
        passed, failed, ignored = self.sums
        took = time.monotonic() - self.began
        well = "FAILED" if self.failed else "ok"
        print(f"test result: {well}. {passed} passed; {failed} failed; {ignored} ignored; "
              f"finished in {took:.2f}s", flush=True)
        return 1 if self.failed else 0


def main():
    names = sys.argv[1:]
    parts = [part for part in built() if not names or any(name in part[0] for name in names)]
    if not parts:
        sys.exit(f"nothing that is tested is named so: {' '.join(names)}")
    runner = Runner(parts)
    if not names:
        runner.examples()
    runner.all()
    sys.exit(runner.close())


if __name__ == "__main__":
    main()
