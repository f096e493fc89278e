"""Loads middlewares of other packages: `extensions.middlewares`, and entry points of `deerflow.middlewares`.

Each is a class without arguments. One that cannot be used costs only itself.
"""

from collections.abc import Iterable
from typing import cast

from langchain.agents.middleware import AgentMiddleware

from deerflow.agents.combine_middlewares import SYNC_HOOKS
from deerflow.agents.middlewares import ChainMiddleware
from deerflow.agents.types import Middleware
from deerflow.config.effect import Fault
from deerflow.errors import ConfigError
from deerflow.plugins import load_extensions

GROUP = "deerflow.middlewares"


def load_middlewares(uses: Iterable[str]) -> tuple[list[Middleware], list[Fault]]:
    """Return the middlewares in use, and the faults of those that cannot be used."""
    taken: dict[str, type] = {cls.__name__: cls for cls in ChainMiddleware.__subclasses__()}

    def make(found: object) -> Middleware:
        middleware = _instance(found)
        if taken.setdefault(middleware.name, type(middleware)) is not type(middleware):
            raise ConfigError(f"there is another middleware called {middleware.name}; rename the class")
        return middleware

    loaded, faults = load_extensions(GROUP, uses, make, setting="extensions.middlewares")
    return list({type(middleware): middleware for middleware in loaded}.values()), faults


def _instance(found: object) -> Middleware:
    if not isinstance(found, type) or not issubclass(found, AgentMiddleware):
        raise ConfigError(f"{found!r} is not a subclass of langchain.agents.middleware.AgentMiddleware")
    for hook in SYNC_HOOKS:
        is_sync = getattr(found, hook) is not getattr(AgentMiddleware, hook)
        if is_sync and getattr(found, f"a{hook}") is getattr(AgentMiddleware, f"a{hook}"):
            raise ConfigError(f"{found.__name__} has only {hook}; agents run asynchronously: add a{hook}")
    return cast("Middleware", found())
