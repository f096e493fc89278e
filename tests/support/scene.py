"""One gateway, one scripted model and one thread: what scenarios over HTTP are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from support.gateway import Gateway, parse_sse
from support.model_server import ScriptedModel

from deerflow.domain import new_id

WORKSPACE = "/mnt/user-data/workspace"
MODES = ["values", "messages-tuple", "updates", "custom"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw of one run."""

    events: list[tuple[str, Any, str | None]]

    def of_kind(self, kind: str) -> list[Any]:
        return [data for name, data, _ in self.events if name == kind]

    def custom(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.of_kind("custom") if event["type"] == kind]

    @property
    def values(self) -> dict[str, Any]:
        values: dict[str, Any] = self.of_kind("values")[-1]
        return values

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation as it stands at the end, without what is not meant for people."""
        return [m for m in self.values["messages"] if not m["additional_kwargs"].get("hide_from_ui")]

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results of tools, in order."""
        return [message for message in self.messages if message["type"] == "tool"]

    @property
    def answer(self) -> str:
        return str(self.messages[-1]["content"])


@dataclass(frozen=True, slots=True)
class Scene:
    """A thread on a gateway, and the model behind it."""

    gateway: Gateway
    model: ScriptedModel
    thread: str = field(default_factory=new_id)

    async def ask(
        self, question: str = "go", *, body: Mapping[str, Any] | None = None, **context: Any
    ) -> Seen:
        """Run one turn and return what a client sees of it."""
        asked = {
            "input": {"messages": [{"type": "human", "content": question}]},
            "stream_mode": MODES,
            "context": context,
            **(body or {}),
        }
        async with self.gateway.client() as api:
            response = await api.post(f"/threads/{self.thread}/runs/stream", json=asked)
        assert response.status_code == 200, response.text
        return Seen(parse_sse(response.text))

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Call another route of the thread."""
        async with self.gateway.client() as api:
            return await api.request(method, f"/threads/{self.thread}{path}", **options)

    def put(self, name: str, content: str | bytes, folder: str = "workspace") -> Path:
        """Put a file into the thread's folders, as if it had always been there."""
        assert self.gateway.deerflow is not None
        folders = self.gateway.deerflow.folders("default", self.thread)
        folders.create()
        path: Path = folders.user_data / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def shown(self, role: str = "tool", request: int = -1) -> list[str]:
        """Return what the model was shown in messages of a role."""
        return [str(m["content"]) for m in self.model.requests[request].messages if m["role"] == role]
