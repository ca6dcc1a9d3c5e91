#!/usr/bin/env python3
"""A producer in Python, written from docs/protocol.md: asks, prints the answer as it comes, survives.

It has a response topic of its own and a durable subscription there, and acknowledges a run's responses
only when the run has ended. So whatever ends this program or the broker, starting it again with the
same id goes on: the request is the same and is not run twice, and what was not acknowledged comes again.

    ask.py --url pulsar://localhost:6650 --id ID --reply-to TOPIC [--pattern P] [--answer FILE] QUESTION
    ask.py --url ... --id ID --body FILE       publishes the bytes of a file as they are

The answer goes to standard output while it is said, everything else to standard error. Exit codes: 0
answered, 1 the run ended in an error.
"""

import argparse
import hashlib
import json
import os
import sys

import pulsar

REQUESTS = "persistent://public/default/agent-request"
RESPONSES = "persistent://public/default/agent-response"


class Collator:
    """Puts messages together from chunks; drops repeats and what dead attempts said."""

    def __init__(self):
        self.chunks = {}  # message id: position: text
        self.ended = set()

    def take(self, response):
        """The new piece of text, and the whole text if the message is complete. Either may be None."""
        message = response.get("message_id", "")
        if not message or message in self.ended:
            return None, None
        chunks = self.chunks.setdefault(message, {})
        seq, text = response.get("seq", 0), response.get("content", "")
        if not response.get("end_of_message"):
            if seq in chunks:
                return None, None
            chunks[seq] = text
            return text, None
        self.ended.add(message)
        if seq == 0:  # it comes whole, whatever was said before
            chunks.clear()
        chunks[seq] = text
        del self.chunks[message]
        return text, "".join(chunks[at] for at in sorted(chunks))


def note(text):
    print(text, file=sys.stderr, flush=True)


class Printer:
    """Prints one message while it is said: the one that began last, if several are."""

    def __init__(self):
        self.message, self.text, self.begun = None, "", set()

    def piece(self, message, text):
        if message not in self.begun:
            self.begun.add(message)
            self._restart(message)
        if message == self.message:
            self._out(text)

    def whole(self, message, text):
        """What was printed may not be what counts."""
        if message != self.message or not text.startswith(self.text):
            self._restart(message)
        self._out(text[len(self.text) :] + "\n")

    def _restart(self, message):
        if self.text:
            print("\n(again)", flush=True)
        self.message, self.text = message, ""

    def _out(self, text):
        self.text += text
        print(text, end="", flush=True)


def follow(consumer, wanted):
    """Prints the run that `wanted` asked for until it ends; the last response and the whole text."""
    collator, printer, kept = Collator(), Printer(), []
    while True:
        message = consumer.receive()
        if message.properties().get("id") != wanted:
            consumer.acknowledge(message)  # another run's
            continue
        kept.append(message)
        response = json.loads(message.data())
        is_root = response["session_id"] == message.properties().get("root")
        piece, whole = collator.take(response)
        kind = response.get("message_type")
        if kind == "answer" and is_root and whole is not None:
            printer.whole(response["message_id"], whole)
        elif kind == "answer" and is_root and piece is not None:
            printer.piece(response["message_id"], piece)
        elif whole is not None:
            note(f"[{kind}] {whole}")
        if whole is not None and response.get("end_of_dialog"):
            for one in kept:
                consumer.acknowledge(one)
            return response, whole


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="pulsar://localhost:6650")
    parser.add_argument("--id", required=True)
    parser.add_argument("--reply-to")
    parser.add_argument("--listen", help="read this topic, and not the one of --reply-to")
    parser.add_argument("--pattern", default="")
    parser.add_argument("--traceparent")
    parser.add_argument("--answer", help="write the answer to this file as well")
    parser.add_argument("--body", help="publish this file")
    parser.add_argument("--compress", default="NONE", help="a method, such as LZ4")
    parser.add_argument("question", nargs="?")
    args = parser.parse_args()

    # Standard output is the answer's.
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(args.url, logger=quiet)
    # Before the request, so that no response can be missed.
    consumer = client.subscribe(
        args.listen or args.reply_to or RESPONSES,
        "ask-" + args.id,
        consumer_type=pulsar.ConsumerType.Exclusive,
    )
    if args.body:
        with open(args.body, "rb") as file:
            body = file.read()
    else:
        request = {"question": args.question, "pattern": args.pattern, "streaming": True}
        body = json.dumps(request).encode()
    properties = {"id": args.id}
    if args.reply_to:
        properties["reply-to"] = args.reply_to
    if args.traceparent:
        properties["traceparent"] = args.traceparent
    method = getattr(pulsar.CompressionType, args.compress)
    producer = client.create_producer(REQUESTS, batching_enabled=False, compression_type=method)
    producer.send(body, properties)
    note("asked")

    response, answer = follow(consumer, args.id)
    error = response.get("error")
    if error:
        note(f"error {error['type']}: {error['message']}")
        status = 1
    else:
        if hashlib.sha256(answer.encode()).hexdigest() != response["digest"]:
            sys.exit("the answer is not what was committed")
        if args.answer:
            with open(args.answer, "w", encoding="utf-8") as file:
                file.write(answer)
        status = 0
    consumer.unsubscribe()  # the run is over: nothing more will come for it
    client.close()
    sys.exit(status)


main()
