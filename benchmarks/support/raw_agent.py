"""The baseline: LangChain's bare `create_agent` with the stock SQLite saver, in a process of its own.

Reads commands from stdin, `{"text": …, "runs": n}`, and answers each with a line of timings; with
`"together": true` the runs go on at the same time.
"""

import asyncio
import json
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

PAUSE_SECONDS = 0.02
FOLDER = Path(tempfile.mkdtemp())


def host_path(path: str) -> Path:
    return FOLDER / path.strip("/").replace("/", "_")


@tool
def write_file(description: str, path: str, content: str) -> str:
    """Write a file."""
    host_path(path).write_text(content)
    return "OK"


@tool
def read_file(description: str, path: str) -> str:
    """Read a file."""
    return host_path(path).read_text()


@tool
def ls(description: str, path: str) -> str:
    """List a folder."""
    return "\n".join(entry.name for entry in FOLDER.iterdir())


async def one_run(agent: Any, text: str) -> tuple[float, float]:
    started, first = time.perf_counter(), 0.0
    config = {"configurable": {"thread_id": str(uuid.uuid4())}, "recursion_limit": 1000}
    stream = agent.astream({"messages": [("user", text)]}, config, stream_mode="messages")
    async for message, _ in stream:
        if not first and isinstance(message, AIMessageChunk) and message.content:
            first = time.perf_counter() - started
    return first, time.perf_counter() - started


async def together(agent: Any, text: str, runs: int) -> dict[str, Any]:
    """Do all runs at once; return the first token's time and the number of tokens of each."""
    used, started = time.process_time(), time.perf_counter()
    outcomes = await asyncio.gather(*(counted_run(agent, text) for _ in range(runs)), return_exceptions=True)
    seconds = time.perf_counter() - started
    good = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    return {"seconds": seconds, "cpu_seconds": time.process_time() - used, "runs": good}


async def counted_run(agent: Any, text: str) -> tuple[float, int]:
    started, first, tokens = time.perf_counter(), 0.0, 0
    config = {"configurable": {"thread_id": str(uuid.uuid4())}, "recursion_limit": 1000}
    async for message, _ in agent.astream({"messages": [("user", text)]}, config, stream_mode="messages"):
        if isinstance(message, AIMessageChunk) and message.content:
            first = first or time.perf_counter() - started
            tokens += 1
    return first, tokens


async def main(model_url: str) -> None:
    model = ChatOpenAI(
        model="bench", base_url=model_url, api_key="sk-bench", streaming=True, stream_usage=True
    )
    async with AsyncSqliteSaver.from_conn_string(str(FOLDER / "checkpoints.db")) as saver:
        agent = create_agent(
            model, [write_file, read_file, ls], system_prompt="You are helpful.", checkpointer=saver
        )
        while line := await asyncio.to_thread(sys.stdin.readline):
            order, timings = json.loads(line), []
            if order.get("together"):
                print(json.dumps(await together(agent, order["text"], order["runs"])), flush=True)
                continue
            for _ in range(order["runs"]):
                timings.append(await one_run(agent, order["text"]))
                await asyncio.sleep(PAUSE_SECONDS)
            print(json.dumps(timings), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
