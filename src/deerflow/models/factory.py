"""Builds the configured chat models, once per combination of options."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

from langchain_core.language_models import BaseChatModel
from pydantic import ValidationError

from deerflow.config import ModelSettings, install_hint, resolve_use
from deerflow.config.secrets import shown
from deerflow.errors import ConfigError, NotFoundError
from deerflow.models.arguments import arguments_for
from deerflow.models.fallback import FallbackChatModel, can_reason
from deerflow.models.pool import SessionPool
from deerflow.models.providers import PLUGINS, class_path
from deerflow.models.repair import repairing
from deerflow.models.tool_call_assembly import reporting_malformed_calls
from deerflow.plugins import find_plugin

logger = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
Options = tuple[str, bool, str | None]


@runtime_checkable
class ClosableModel(Protocol):
    """A model that holds its own connections."""

    async def aclose(self) -> None:
        """Close the connections."""


class ModelFactory:
    """Creates the configured chat models by name; the first one is the default."""

    def __init__(self, models: Sequence[ModelSettings], *, env: Mapping[str, str]) -> None:
        self._settings = {model.name: model for model in models}
        self._env = env
        self._pool = SessionPool(env=env)
        self._built: dict[Options, BaseChatModel] = {}
        self._with_fallbacks: dict[Options, BaseChatModel] = {}
        self._loaded: set[str] = set()
        if len(self._settings) < len(models):
            raise ConfigError("models: two entries have the same name; names must differ")
        for name in self._settings:
            list(self._chain(name, ()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models, in settings order."""
        return tuple(self._settings)

    @property
    def default_name(self) -> str:
        """The name of the model that is used when a caller names none."""
        if not self._settings:
            raise ConfigError(
                "models: there is no model; add an entry, or remove `models:` to let DeerFlow look"
            )
        return next(iter(self._settings))

    def get(self, name: str) -> ModelSettings:
        """Return the settings of a model; raise NotFoundError if the name is unknown."""
        try:
            return self._settings[name]
        except KeyError:
            raise NotFoundError("model", name, known=self.names) from None

    def create(
        self, name: str | None = None, *, thinking_enabled: bool = True, reasoning_effort: str | None = None
    ) -> BaseChatModel:
        """Return the model called `name`, or the default one, wrapped with its fallbacks.

        Args:
            thinking_enabled: Enable thinking if the model supports it.
            reasoning_effort: The reasoning effort; ignored by models that do not support it.
        """
        options = (name or self.default_name, thinking_enabled, reasoning_effort)
        model = self._with_fallbacks.get(options)
        if model is None:
            model = self._with_fallbacks[options] = self._create(*options)
        return model

    def can_reason(self, name: str | None = None) -> bool:
        """Return whether the model called `name` (default: the first one) can reason."""
        try:
            return can_reason(self.create(name, thinking_enabled=False))
        except ConfigError:  # reported to the caller that uses the model
            return True

    async def load(self, *names: str) -> None:
        """Import the packages of the named models and their fallbacks; of all models if no name is given.

        Runs in a thread: importing a provider's package takes a second and would block the event loop in
        `create`. Import errors are raised by `create`.
        """
        known = [name for name in names or self.names if name in self._settings]
        wanted = {each for name in known for each in self._chain(name, ())} - self._loaded
        if wanted:
            await asyncio.to_thread(self._import_classes, [self._settings[name] for name in wanted])
            self._loaded |= wanted

    def _import_classes(self, models: Iterable[ModelSettings]) -> None:
        for settings in models:
            try:
                if "pool" in _class_of(settings).model_fields:
                    self._pool.prepare()
            except Exception as error:  # third-party code; `create` raises it again to its caller
                logger.debug("model %s cannot be loaded: %s", settings.name, error)

    async def aclose(self) -> None:
        """Close all connections to model servers."""
        for model in self._built.values():
            if isinstance(model, ClosableModel):
                await model.aclose()
        await self._pool.aclose()

    def _create(self, name: str, thinking_enabled: bool, reasoning_effort: str | None) -> BaseChatModel:
        self.get(name)
        names = tuple(dict.fromkeys(self._chain(name, ())))
        members = tuple(self._member(one, thinking_enabled, reasoning_effort) for one in names)
        if len(members) == 1:
            return members[0]
        # Support for structured output differs between members, so the profile does not promise it.
        profile: Any = {k: v for k, v in (members[0].profile or {}).items() if k != "structured_output"}
        return FallbackChatModel(members=members, names=names, profile=profile)

    def _chain(self, name: str, above: tuple[str, ...]) -> Iterator[str]:
        """Yield `name` and its fallbacks, recursively, in the order in which they are called."""
        if name in above:
            raise ConfigError(f"models: the fallbacks {' -> '.join((*above, name))} form a cycle")
        if name not in self._settings:
            raise ConfigError(
                f"models[{above[-1]}].fallbacks: there is no model {name!r}; known: {', '.join(self.names)}"
            )
        yield name
        for fallback in self._settings[name].fallbacks:
            yield from self._chain(fallback, (*above, name))

    def _member(self, name: str, thinking_enabled: bool, reasoning_effort: str | None) -> BaseChatModel:
        settings = self._settings[name]
        is_thinking = thinking_enabled and settings.supports_thinking
        effort = reasoning_effort if settings.supports_reasoning_effort else None
        options = (name, is_thinking, effort)
        if options not in self._built:
            self._built[options] = self._build(settings, is_thinking=is_thinking, reasoning_effort=effort)
        return self._built[options]

    def _build(
        self, settings: ModelSettings, *, is_thinking: bool, reasoning_effort: str | None
    ) -> BaseChatModel:
        cls = _class_of(settings)
        arguments = arguments_for(
            settings, cls, is_thinking=is_thinking, reasoning_effort=reasoning_effort, env=self._env
        )
        if "pool" in cls.model_fields:
            arguments["pool"] = self._pool
            proxy = self._pool.proxy_for(arguments.get("base_url") or OPENAI_URL)
            _set_proxy(proxy, arguments, settings)
        is_lean = "pool" in cls.model_fields and arguments.get("transport") != "sdk"
        if not is_lean or arguments.get("use_responses_api"):  # the lean transport checks calls itself
            cls = reporting_malformed_calls(cls)
        if settings.repair_tool_calls != "never":
            cls = repairing(cls, settings.repair_tool_calls)
        model = _constructed(cls, arguments, settings)
        if settings.context_window is not None:
            model.profile = {**(model.profile or {}), "max_input_tokens": settings.context_window}
        return model


def _class_of(settings: ModelSettings) -> type[BaseChatModel]:
    use = settings.use.strip()
    try:
        found = resolve_use(class_path(use)) if ":" in use else find_plugin(PLUGINS, use).load()
    except ConfigError as error:
        raise ConfigError(f"models[{settings.name}].{error}") from error
    if not isinstance(found, type) or not issubclass(found, BaseChatModel):
        raise ConfigError(f"models[{settings.name}].use: {use!r} is not a LangChain chat model class")
    return found


def _set_proxy(proxy: str | None, arguments: dict[str, Any], settings: ModelSettings) -> None:
    """Pass the proxy to the SDK too, which does not see variables that are only set in `.env`."""
    proxy = arguments.get("openai_proxy") or proxy
    if not proxy:
        return
    arguments["openai_proxy"] = proxy
    if proxy.startswith("socks"):
        if find_spec("socksio") is None:
            raise ConfigError(
                f"models[{settings.name}]: a SOCKS proxy needs one more package: {install_hint('socksio')}; "
                "or name an HTTP proxy in HTTPS_PROXY"
            )
        arguments["transport"] = "sdk"  # the lean transport supports only HTTP proxies


def _constructed(
    cls: type[BaseChatModel], arguments: Mapping[str, Any], settings: ModelSettings
) -> BaseChatModel:
    try:
        return cls(**arguments)
    except ValidationError as error:  # its message contains the values, and one may be the key
        found = (f"{_named(one['loc'], one['input'])}: {one['msg']}" for one in error.errors())
        raise ConfigError(f"models[{settings.name}]: {'; '.join(found)}") from None
    except Exception as error:  # SDKs raise their own errors, mostly for a missing key
        raise ConfigError(f"models[{settings.name}]: {settings.use} cannot be set up: {error}") from error


def _named(path: tuple[int | str, ...], value: object) -> str:
    """Return an invalid argument and its value, which is masked if it may be a secret."""
    return f"{'.'.join(map(str, path))} is {shown(value, path)}" if path else "entry"
