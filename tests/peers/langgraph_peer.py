"""LangGraph with its SQLite checkpointer, asked by run.py: langgraph_peer.py DATABASE

It writes a checkpoint, synced to disk, before the next step begins.
"""

import asyncio
import operator
import sys
import time
import uuid
from typing import Annotated, TypedDict

import agent
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send


class Run(TypedDict):
    question: str
    steps: int
    history: Annotated[list, operator.add]
    answers: Annotated[list, operator.add]


class Supervised(TypedDict):
    goals: list
    answers: Annotated[list, operator.add]
    answer: str


def step(run):
    done = agent.step(run["history"], run["steps"])
    return {"answers": [done["answer"]]} if "answer" in done else {"history": [done]}


def react():
    graph = StateGraph(Run)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda run: END if run["answers"] else "step", ["step", END])
    return graph


def start(question, steps):
    return {"question": question, "steps": steps, "history": [], "answers": []}


def supervisor():
    graph = StateGraph(Supervised)
    graph.add_node("decompose", lambda _: {"goals": agent.decompose()})
    graph.add_node("subagent", react().compile())
    graph.add_node("synthesise", lambda run: {"answer": agent.synthesise(run["answers"])})
    graph.add_edge(START, "decompose")
    graph.add_conditional_edges("decompose", lambda run: [Send("subagent", start(goal, 2)) for goal in run["goals"]], ["subagent"])
    graph.add_edge("subagent", "synthesise")
    graph.add_edge("synthesise", END)
    return graph


async def main():
    async with AsyncSqliteSaver.from_conn_string(sys.argv[1]) as saver:
        await saver.setup()
        await saver.conn.execute("PRAGMA synchronous=FULL")
        graphs = {"steps": react().compile(checkpointer=saver), "supervisor": supervisor().compile(checkpointer=saver)}
        inputs = {"steps": start("steps=20", 20), "supervisor": {"goals": [], "answers": [], "answer": ""}}

        async def run(work):
            config = {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": 100}
            began = time.perf_counter()
            ended = await graphs[work].ainvoke(inputs[work], config, durability="sync")
            answer = ended["answer"] if work == "supervisor" else ended["answers"][0]
            assert answer == agent.ANSWERS[work], answer
            return time.perf_counter() - began

        async def session(work, more, times):
            while more():
                times.append(await run(work))

        agent.tell(ready=True)
        for asked in agent.asked():
            times, began, more = [], time.perf_counter(), agent.more(asked)
            await asyncio.gather(*(session(asked["work"], more, times) for _ in range(asked["sessions"])))
            agent.tell(took=time.perf_counter() - began, times=times)


asyncio.run(main())
