"""A server that speaks as OpenAI, Anthropic, Google and Ollama do, and records what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
ANSWER = "Here I am."


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came over the wire."""

    path: str
    head: str
    body: str


@dataclass(slots=True)
class ProviderServer:
    """Where it listens, and what it was asked."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lower = head.lower()
        size = int(lower.split("content-length:")[1].split("\r\n")[0]) if "content-length:" in lower else 0
        body = (await reader.readexactly(size)).decode()
        path = head.split(" ")[1]
        self.asked.append(Asked(path, head, body))
        kind, said = _said(path)
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{said}".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def provider_server() -> AsyncIterator[ProviderServer]:
    """Yield a server on the loopback that answers until the block is left."""
    provider = ProviderServer()
    server = await asyncio.start_server(provider.answer, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        server.close()
        await server.wait_closed()


def _said(path: str) -> tuple[str, str]:
    if "/messages" in path:
        return "text/event-stream", _anthropic()
    if "GenerateContent" in path or "generateContent" in path:
        content = {"role": "model", "parts": [{"text": ANSWER}]}
        return "text/event-stream", _events({"candidates": [{"content": content, "finishReason": "STOP"}]})
    if "/api/chat" in path:
        said = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True, "done_reason": "stop"}
        return "application/x-ndjson", json.dumps({**said, "message": _message()}) + "\n"
    choice = {"index": 0, "delta": _message(), "finish_reason": "stop"}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return "text/event-stream", _events(chunk) + "data: [DONE]\n\n"


def _message() -> Json:
    return {"role": "assistant", "content": ANSWER}


def _anthropic() -> str:
    counts = {"input_tokens": 1, "output_tokens": 1}
    opening = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": []}
    events: list[Json] = [
        {"type": "message_start", "message": {**opening, "stop_reason": None, "usage": counts}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\n{_events(event)}" for event in events)


def _events(*bodies: Json) -> str:
    return "".join(f"data: {json.dumps(body)}\n\n" for body in bodies)
