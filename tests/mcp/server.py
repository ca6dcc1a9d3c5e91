#!/usr/bin/env python3
"""A server on the official SDK, for tests: `server.py` speaks on standard input and output, `server.py http` over
HTTP, and says its address in its first line. `server.py changed` has another `add` and no `burn`."""

import asyncio
import os
import socket
import subprocess
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("diary")
was_cut_off = asyncio.Event()


def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers"""
    return {"sum": a + b}


def add_three(a: int, b: int, c: int) -> dict[str, int]:
    """Add three numbers"""
    return {"sum": a + b + c}


def burn(day: str) -> str:
    """Burn a day"""
    raise ToolError(f"{day} does not burn")


reads = ToolAnnotations(readOnlyHint=True)
if "changed" in sys.argv:
    server.add_tool(add_three, name="add", annotations=reads)
else:
    server.add_tool(add, annotations=reads)
    server.add_tool(burn, annotations=ToolAnnotations(destructiveHint=True))


@server.tool(annotations=reads)
def told(name: str, context: Context) -> str:
    """What the environment or the headers of the request have"""
    return os.environ.get(name) or (context.headers or {}).get(name, "nothing")


@server.tool()
async def hang() -> str:
    """Answer only when it is cut off"""
    try:
        await asyncio.Event().wait()
    finally:
        was_cut_off.set()


@server.tool()
async def cut_off() -> str:
    """Answer once a call was cut off"""
    await was_cut_off.wait()
    return "yes"


@server.tool()
def beget(port: int) -> str:
    """Start a process that holds a connection to a port, and outlives this one"""
    held = "import socket, sys, time\nheld = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\ntime.sleep(600)"
    subprocess.Popen([sys.executable, "-c", held, str(port)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return "begot"


@server.tool()
def die() -> str:
    """End in the midst of a call"""
    os._exit(3)


@server.tool()
def much(bytes: int) -> str:
    """A long text"""
    return "x" * bytes


@server.resource("notes://{day}")
def notes(day: str) -> str:
    """Notes of a day"""
    return f"notes of {day}"


if __name__ == "__main__":
    if "http" in sys.argv:
        import uvicorn

        listener = socket.create_server(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        config = uvicorn.Config(server.streamable_http_app(), log_level="error")
        asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
    else:
        server.run()
