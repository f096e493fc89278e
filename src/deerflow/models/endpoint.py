"""Connection parameters of one model server."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """URL, headers, proxy, retries and timeouts of the requests to one model."""

    url: str
    model: str
    headers: Callable[[], Awaitable[Mapping[str, str]]]
    """Called for every request, since keys may change while the process runs."""
    query: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = None
    max_retries: int = 2
    connect_seconds: float = 10
    read_seconds: float | None = 600
    chunk_seconds: float | None = 240
    """Maximum time between chunks of a stream; keep-alive comments do not count as chunks."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
