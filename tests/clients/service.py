#!/usr/bin/env python3
"""A tool service in Python, written from docs/tools.md: answers requests in two parts until it is ended.

    service.py --url pulsar://localhost:6650 --requests TOPIC --answers TOPIC
"""

import argparse
import json
import os

import pulsar


def answer(request):
    arguments, config = json.loads(request["arguments"]), json.loads(request["config"])
    if arguments["topic"] == "none":
        return [{"error": {"type": "tool-service-error", "message": "there is no topic"}, "response": "", "end_of_stream": True}]
    return [
        {"error": None, "response": f"A {config['style']} about ", "end_of_stream": False},
        {"error": None, "response": arguments["topic"], "end_of_stream": True},
    ]


def main():
    parser = argparse.ArgumentParser()
    for name in ["--url", "--requests", "--answers"]:
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(given.url, logger=quiet)
    consumer = client.subscribe(given.requests, "joke-request", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(given.answers)
    print("serving", flush=True)
    while True:
        message = consumer.receive()
        # Somebody else's answer, which nobody of the fleet has asked for.
        producer.send(b"{}", properties={"id": "other"})
        for part in answer(json.loads(message.data())):
            producer.send(json.dumps(part).encode(), properties={"id": message.properties()["id"]})
        consumer.acknowledge(message)


main()
