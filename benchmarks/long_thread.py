"""Five hundred turns with a 20 KB tool result each: does every request fit a model that reads 32,000 tokens?

The model server counts each request as a provider would and refuses one that is too long. Run over HTTP
against the whole stack, with the default settings and a model whose `context_window` is 32,000.
"""

import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.support.arena import LIGHT, free_port, serving
from benchmarks.support.report import promise
from deerflow.agents.middlewares.tokens import measure_text
from tests.support.model_server import Reply, Request, ScriptedModel, call, status, text

TURNS = 500
WINDOW = 32_000
RESULT_BYTES = 20_000
PATH = "/mnt/user-data/workspace/data.txt"
LINE = "{number:05} The measured value of the day was {value} and nobody had expected that.\n"


class CountingModel:
    """Reads a file in every turn, then answers; refuses what is longer than its window."""

    def __init__(self) -> None:
        self.most_tokens = 0
        self.calls = 0
        self.overflows = 0
        self.summaries = 0

    def reply(self, request: Request) -> Reply:
        """Answer one call."""
        tokens = tokens_of(request.body)
        self.calls += 1
        if tokens > WINDOW:
            self.overflows += 1
            return status(
                400, message=f"maximum context length is {WINDOW}, not {tokens} (context_length_exceeded)"
            )
        self.most_tokens = max(self.most_tokens, tokens)
        if "Write one summary" in request.asked:
            self.summaries += 1
            return text("The user asks for the value again and again; it is read from data.txt each time.")
        if request.step == 0:
            return call("read_file", description="look", path=PATH)
        return text(f"Answer to {request.asked}")


def tokens_of(body: dict[str, Any]) -> int:
    """Return how many tokens a provider would count."""
    parts = [str(message.get("content") or "") for message in body["messages"]]
    parts += [json.dumps(message["tool_calls"]) for message in body["messages"] if message.get("tool_calls")]
    return sum(measure_text(part) + 4 for part in parts) + measure_text(json.dumps(body.get("tools") or []))


def ask(port: int, question: str) -> str:
    """Run one turn and return its answer."""
    body = {"input": {"messages": [{"type": "human", "content": question}]}, "if_not_exists": "create"}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/threads/long/runs/wait",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        values = json.load(response)
    return str(values["messages"][-1]["content"]) if "messages" in values else str(values)


def main() -> int:
    counting = CountingModel()
    with ScriptedModel() as server, tempfile.TemporaryDirectory() as folder:
        server.on(lambda request: True, counting.reply)
        home = Path(folder)
        entry = {"name": "long", "use": "langchain_openai:ChatOpenAI", "model": "long", "api_key": "sk-bench"}
        model = {**entry, "base_url": server.base_url, "context_window": WINDOW}
        port = free_port()
        with serving(home, server.base_url, port, models=[model], **LIGHT):
            lines = [LINE.format(number=n, value=n * 7919 % 1000) for n in range(RESULT_BYTES // 76)]
            data = home / "home/users/default/threads/long/user-data/workspace/data.txt"
            data.parent.mkdir(parents=True, exist_ok=True)
            data.write_text("".join(lines))
            started = time.perf_counter()
            answered = 0
            for turn in range(TURNS):
                answered += ask(port, f"question {turn}") == f"Answer to question {turn}"
                server.requests.clear()
            seconds = time.perf_counter() - started
    return promise(
        "long_thread",
        ratio=counting.most_tokens / WINDOW if answered == TURNS else float("inf"),
        at_most=1.0,
        turns=TURNS,
        answered=answered,
        most_tokens=counting.most_tokens,
        overflows=counting.overflows,
        summaries=counting.summaries,
        turn_ms=round(seconds / TURNS * 1000, 1),
    )


if __name__ == "__main__":
    sys.exit(main())
