"""DBOS on SQLite, asked by run.py: dbos_peer.py DATABASE

The result of a step is committed, synced to disk, before the next step begins.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import agent
from dbos import DBOS
from sqlalchemy import Engine, event


@event.listens_for(Engine, "connect")
def synced(connection, _record):
    connection.execute("PRAGMA synchronous=FULL")


DBOS(config={
    "name": "peer",
    "system_database_url": f"sqlite:///{sys.argv[1]}",
    "run_admin_server": False,
    "log_level": "ERROR",
    "application_version": "1",
})


@DBOS.step()
def step(history, steps):
    return agent.step(history, steps)


@DBOS.step()
def decompose():
    return agent.decompose()


@DBOS.step()
def synthesise(answers):
    return agent.synthesise(answers)


@DBOS.workflow()
def react(_question, steps):
    history = []
    while "answer" not in (done := step(history, steps)):
        history.append(done)
    return done["answer"]


@DBOS.workflow()
def supervisor():
    subagents = [DBOS.start_workflow(react, goal, 2) for goal in decompose()]
    return synthesise([subagent.get_result() for subagent in subagents])


def run(work):
    began = time.perf_counter()
    answer = supervisor() if work == "supervisor" else react("steps=20", 20)
    assert answer == agent.ANSWERS[work], answer
    return time.perf_counter() - began


def session(work, more, times):
    while more():
        times.append(run(work))


def main():
    DBOS.launch()
    agent.tell(ready=True)
    for asked in agent.asked():
        times, began, more = [], time.perf_counter(), agent.more(asked)
        with ThreadPoolExecutor(asked["sessions"]) as callers:
            sessions = [callers.submit(session, asked["work"], more, times) for _ in range(asked["sessions"])]
        for ended in sessions:
            ended.result()
        agent.tell(took=time.perf_counter() - began, times=times)
    DBOS.destroy()


main()
