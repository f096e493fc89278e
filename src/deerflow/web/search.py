"""Searches with several providers: one after the other until one has results, or all at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from deerflow.errors import WebError
from deerflow.web.api import ProviderApi, ProviderOptions, RateLimits
from deerflow.web.providers import Mode

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The results of a search by provider, and the reasons of those that failed."""

    results: tuple[tuple[T, ...], ...]
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderChain:
    """The configured providers of one tool."""

    providers: tuple[ProviderOptions, ...]
    mode: Mode = "fallback"

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies the chain in a cache."""
        return (self.mode, *(provider.name for provider in self.providers))


async def ask_providers(
    chain: ProviderChain,
    ask: Callable[[ProviderApi], Awaitable[Sequence[T]]],
    *,
    limits: RateLimits,
    env: Mapping[str, str],
) -> Found[T]:
    """Return what the providers find; raise `WebError`, which names them all, if every one fails."""
    apis = [ProviderApi(provider, limits=limits, env=env) for provider in chain.providers]
    failures: list[str] = []

    async def one(api: ProviderApi) -> tuple[T, ...]:
        try:
            return tuple(await ask(api))
        except WebError as error:
            logger.info("web provider %s failed: %s", api.name, error)
            failures.append(str(error))
            return ()

    if chain.mode == "parallel":
        found = [results for results in await asyncio.gather(*map(one, apis)) if results]
    else:
        found = []
        for api in apis:
            if results := await one(api):
                found = [results]
                break
    if not found and len(failures) == len(apis):
        raise WebError("; ".join(failures))
    return Found(tuple(found), tuple(failures))
