"""Agents that break the protocol, on nothing but the standard library so that they start at once.

hang      takes the prompt and never answers, with a helper in a session of its own
deaf      does not even greet
die       says a word, complains on stderr and exits with 3
partial   dies in the middle of a message
flood     sends updates without end
noise     writes to stderr without end
long      sends one endless line
garbage   prints what is no message, without end
nonsense  sends updates, requests and answers that make no sense, then answers
banner    prints a greeting before it behaves
refuse    answers the prompt with an error
wrong     answers the greeting with something else
old       speaks version 0
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

MODE = sys.argv[1]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send(method="session/update", params={"sessionId": "s1", "update": update})


def hang() -> None:
    helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    say(f"helper {helper.pid} ")
    time.sleep(600)


def die() -> None:
    say("half of the work is done")
    sys.stderr.write("out of luck\n")
    sys.stderr.flush()
    os._exit(3)


def partial() -> None:
    os.write(1, b'{"jsonrpc": "2.0", "id": 2, "result": {"stopRea')
    os._exit(0)


def flood() -> None:
    while True:
        say("x")


def noise() -> None:
    for _ in range(200):
        os.write(2, b"e" * 65536)


def long() -> None:
    while True:
        os.write(1, b"x" * 65536)


def garbage() -> None:
    while True:
        os.write(1, b"[1, 2]\n\xff\xfe\nnull\n")


def nonsense() -> None:
    send(method="session/update", params={"update": 5})
    send(method="session/update", params=[])
    send(method="no/such/notification")
    send(method=7)
    send(id=90, method="no/such/request", params={})
    send(id=91, method="terminal/create", params={"sessionId": "s1", "command": "rm"})
    send(id=92, method="fs/read_text_file", params="x")
    send(id=[], result={})
    send(id=12345, result={})
    send(id=None, error="no")
    for _ in range(3):
        answer = json.loads(sys.stdin.readline())
        say(f"{answer['id']}: {answer['error']['code']}; ")


def greet() -> None:
    say("hello")


def prompted(request: int) -> None:
    if MODE == "refuse":
        error = {"code": -32000, "message": "Authentication required", "data": {"details": "log in first"}}
        return send(id=request, error=error)
    ways = (hang, die, partial, flood, noise, long, garbage, nonsense)
    {way.__name__: way for way in ways}.get(MODE, greet)()
    return send(id=request, result={"stopReason": "end_turn"})


def main() -> None:
    if MODE == "banner":
        print("Welcome to the agent!\n", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        match message["method"]:
            case "initialize" if MODE == "deaf":
                time.sleep(600)
            case "initialize" if MODE == "wrong":
                send(id=message["id"], result={"protocolVersion": "one"})
            case "initialize":
                send(id=message["id"], result={"protocolVersion": 0 if MODE == "old" else 1})
            case "session/new":
                send(id=message["id"], result={"sessionId": "s1"})
            case "session/prompt":
                prompted(message["id"])


main()
