"""npm's `@langchain/langgraph-sdk`, unmodified, against a real gateway."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from support.gateway import Gateway
from support.model_server import ScriptedModel, text

HERE = Path(__file__).parent / "js"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which this machine does not have")
async def test_the_js_client_walks_through_threads_and_runs(gateway: Gateway, model: ScriptedModel) -> None:
    model.on("slow please", text("never " * 500, delay=0.2))
    model.on("join please", text("you joined"))
    model.on("wait please", text("you waited"))
    model.on("stream please", text("you streamed"))

    node = await asyncio.create_subprocess_exec(
        "node", str(HERE / "sdk.mjs"), f"{gateway.url}/api/langgraph", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(node.communicate(), 180)

    assert node.returncode == 0
    seen = json.loads(output)
    assert set(seen.pop("kinds")) >= {"metadata", "values", "messages", "updates"}
    assert seen.pop("state") in (7, 8)  # the cancelled run may have said something, which stays
    assert seen == {
        "thread": True,
        "runId": True,
        "text": "you streamed",
        "sameIds": True,
        "waited": "you waited",
        "joined": "you joined",
        "rejoined": True,
        "cancelled": "interrupted",
        "runs": 4,
        "checkpoint": True,
        "history": 2,
        "historyIds": True,
        "found": True,
        "title": "renamed",
        "assistants": ["lead_agent"],
        "gone": True,
    }
