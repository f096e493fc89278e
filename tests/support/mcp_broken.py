"""A program that speaks MCP by hand: badly, in the way its argument names, or `plain`, noting what happens.

It starts in a fraction of the time that the SDK takes.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1]
LOG = Path(sys.argv[2]) if len(sys.argv) > 2 else None

LAUGHS: dict[str, Any] = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(25)}
SCHEMAS: dict[str, Any] = {
    "good": {"type": "object", "properties": {"x": {"type": "integer"}}},
    "odd": {"type": "object", "properties": {"x": {"type": "no such type"}}},
    "laughs": {"type": "object", "properties": {"x": {"$ref": "#/$defs/l0"}}, "$defs": {**LAUGHS, "l25": {}}},
    "elsewhere": {"type": "object", "properties": {"x": {"$ref": "http://169.254.169.254/schema"}}},
    "missing": {"type": "object", "properties": {"x": {"$ref": "#/$defs/nowhere"}}},
    "endless": {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next", "ghost"]},
}


HEAVY_PATTERN = "|".join(f"x{n}" for n in range(60_000))
HEAVY_OUTPUT = {"type": "object", "properties": {"s": {"type": "string", "pattern": "^(a+)+$"}}}


def heavy(what: str) -> dict[str, Any]:
    """Return a result that takes long to read, check or pass on."""
    match what:
        case "pattern":
            return {"content": [], "structuredContent": {"s": "a" * 60 + "!"}}
        case "blocks":
            return {"content": [{"type": "text", "text": "x"}] * 300_000}
        case "some blocks":
            return {"content": [{"type": "text", "text": "x"}] * 10_000}
        case "values":
            return {"content": [], "structuredContent": {"n": list(range(1_000_000))}}
        case "some values":
            return {"content": [], "structuredContent": {"n": [{"a": n} for n in range(15_000)]}}
        case "text":
            return {"content": [{"type": "text", "text": "\n\u00e9<" * 1_500_000}]}
        case "image":
            return {"content": [{"type": "image", "data": "QUJD" * 3_000_000, "mimeType": "image/png"}]}
        case "keys":
            return {"content": [], "_meta": {f"k{n}": n for n in range(300_000)}}
    raise ValueError(what)


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


# With `told`, what follows the mode is a file that says which tools there are and how they are described.
def note(line: str) -> None:
    if LOG is not None:
        with LOG.open("a") as file:
            file.write(f"{line}\n")


def serve(call: dict[str, Any]) -> None:
    """Do what a plain server's tools do; `wait` never answers."""
    name, arguments = call["params"]["name"], call["params"].get("arguments", {})
    note(name)
    match name:
        case "add":
            result = str(arguments["a"] + arguments["b"])
        case "environment":
            variables = [f"{key}={value}" for key, value in os.environ.items()]
            token = call["params"].get("_meta", {}).get("progressToken")
            told = {"progressToken": token, "progress": 1, "message": f"GIVEN is {os.environ.get('GIVEN')}"}
            say({"method": "notifications/progress", "params": told})
            result = "\n".join([f"cwd={Path.cwd()}", *variables])
        case "spawn":
            helper = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
            result = str(helper.pid)
        case _:
            return
    say({"id": call["id"], "result": {"content": [{"type": "text", "text": result}]}})


def tools() -> list[dict[str, Any]]:
    if MODE == "schemas":
        return [{"name": name, "description": "d", "inputSchema": schema} for name, schema in SCHEMAS.items()]
    if MODE == "plain":
        names = ["add", "environment", "spawn", "wait"]
        return [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    if MODE == "list":
        return [{"name": "act", "inputSchema": {"type": "array"}}]
    if MODE == "names":
        names = ["plain", "with spaces", "with/spaces", "<system>", "n" * 100, "n" * 101]
        return [{"name": name, "description": "w" * 9000, "inputSchema": SCHEMAS["good"]} for name in names]
    if MODE == "many":
        return [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(10_000)]
    if MODE == "heavy":
        wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(2000)}}
        odd = {"type": "object", "properties": {"x": {"type": "string", "pattern": HEAVY_PATTERN}}}
        # A pattern of other languages: who compiles it here leaves the tool out.
        other = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^\\p{L}+$"}}}
        return [
            {"name": "act", "inputSchema": SCHEMAS["good"], "outputSchema": HEAVY_OUTPUT},
            {"name": "odd", "inputSchema": odd},
            {"name": "other", "inputSchema": other},
            *({"name": f"wide{n}", "inputSchema": wide} for n in range(3)),
        ]
    if MODE == "told":
        told = json.loads((LOG or Path()).read_text())
        return [{"name": name, "inputSchema": {"type": "object"}, **tool} for name, tool in told.items()]
    if MODE == "tasks":
        return [
            {"name": "soon", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
            {"name": "later", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
        ]
    declared = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return [{"name": "act", "description": "acts", "inputSchema": SCHEMAS["good"], "outputSchema": declared}]


def act(call: dict[str, Any]) -> None:
    match MODE:
        case "hang":
            return
        case "die":
            print("token is sk-very-secret-1", file=sys.stderr, flush=True)
            sys.exit(4)
        case "flood":
            while True:
                say({"method": "notifications/message", "params": {"level": "info", "data": "x"}})
        case "huge":
            sys.stdout.write("x" * 100_000_000)
            sys.stdout.flush()
            time.sleep(60)
        case "garbage":
            for _ in range(200):
                print("Traceback (most recent call last):", flush=True)
            time.sleep(60)
        case "lie":
            content = [{"type": "text", "text": "done"}]
            say({"id": call["id"], "result": {"content": content, "structuredContent": {"n": "seven"}}})
        case "heavy":
            say({"id": call["id"], "result": heavy(call["params"]["arguments"]["what"])})
        case "nonsense":
            say({"id": call["id"], "result": {"content": 7}})
        case _:
            say({"id": call["id"], "error": {"code": -32000, "message": "no such luck"}})


def answer(call: dict[str, Any]) -> None:
    match call.get("method"):
        case "initialize" if MODE != "mute":
            info = {"name": MODE, "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            say({"id": call["id"], "result": result})
        case "tools/list":
            if MODE == "restless":
                say({"method": "notifications/tools/list_changed"})
            say({"id": call["id"], "result": {"tools": tools()}})
        case "tools/call" if MODE == "plain":
            serve(call)
        case "tools/call":
            act(call)
        case "notifications/cancelled":
            note("cancelled")
        case "server/discover":
            say({"id": call["id"], "error": {"code": -32601, "message": "what?"}})


if MODE == "quit":
    print("no license found", file=sys.stderr)
    sys.exit(5)
if MODE != "told":
    note(f"started {os.getpid()}")
print("Welcome to my server!", flush=True)
for line in sys.stdin:
    answer(json.loads(line))
