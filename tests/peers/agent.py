"""What the two Python systems have in common: a model and a tool that answer at once, and how they are asked.

A run of N steps calls the model N times. Each answer but the last asks for a tool, with an argument of its own.
"""

import json
import sys
import time

SUBAGENTS = 4


def model(history, steps):
    """The model's text; the history is what the steps before it returned."""
    done = len(history)
    if done + 1 < steps:
        return f'Thought: go on\nAction: noop\nArgs: {json.dumps({"query": f"page {done}"})}'
    return "Thought: done\nFinal Answer: it is done"


def tool(_arguments):
    return "ok"


def step(history, steps):
    """One step: the model, and then the tool that it asks for. Without `observation` the run has ended."""
    thought, said, *rest = (line.partition(": ")[2] for line in model(history, steps).splitlines())
    if not rest:
        return {"thought": thought, "answer": said}
    arguments = json.loads(rest[0])
    return {"thought": thought, "action": said, "arguments": arguments, "observation": tool(arguments)}


def decompose():
    return [f"goal {n}" for n in range(SUBAGENTS)]


def synthesise(answers):
    return f"{len(answers)} answers: {answers[0]}"


ANSWERS = {"steps": "it is done", "supervisor": f"{SUBAGENTS} answers: it is done"}


def asked():
    """What the comparison asks for, one line each: `work`, `sessions`, and `seconds` or `runs`."""
    return map(json.loads, sys.stdin)


def more(asked):
    """Tells a session whether it is to ask for another run."""
    if "runs" in asked:
        left = iter(range(asked["runs"]))
        return lambda: next(left, None) is not None
    until = time.perf_counter() + asked["seconds"]
    return lambda: time.perf_counter() < until


def tell(**what):
    print(json.dumps(what), flush=True)
