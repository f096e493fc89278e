"""Where and how a model is reached."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how a model is reached."""

    url: str
    model: str
    headers: Callable[[], Awaitable[Mapping[str, str]]]
    """Asked for every call, since keys may change while the process runs."""
    query: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = None
    max_retries: int = 2
    connect_seconds: float = 10
    read_seconds: float | None = 600
    chunk_seconds: float | None = 240
    """How long a stream may be silent between chunks; comments that only keep it alive do not count."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
