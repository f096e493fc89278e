"""Guardrail providers, which decide about tool calls; configured in `guardrails.provider.use`."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from deerflow.config import resolve_use
from deerflow.config.tools import GuardrailsSettings
from deerflow.errors import ConfigError
from deerflow.tools.policy import PYTHON, SHELL


@dataclass(frozen=True, slots=True)
class GuardrailRequest:
    """A tool call that a provider decides about."""

    tool_name: str
    tool_input: Mapping[str, Any]
    agent_id: str | None = None
    """The settings' `passport`: the agent's declared identity."""
    thread_id: str | None = None
    is_subagent: bool = False
    timestamp: str = field(default_factory=lambda: datetime.now(UTC).isoformat())


@dataclass(frozen=True, slots=True)
class GuardrailReason:
    """One reason for a decision."""

    code: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class GuardrailDecision:
    """A provider's decision."""

    allow: bool
    reasons: Sequence[GuardrailReason] = ()
    policy_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


class AllowlistProvider:
    """Allows tools by name: those on the list, or all without a list, except the denied ones."""

    name = "allowlist"

    def __init__(
        self, *, allowed_tools: Iterable[str] | None = None, denied_tools: Iterable[str] = ()
    ) -> None:
        self._allowed = None if allowed_tools is None else frozenset(allowed_tools)
        self._denied = frozenset(denied_tools or ())

    def evaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        """Decide about one call."""
        if request.tool_name in self._denied:
            return _no("denied", f"{request.tool_name} is in denied_tools")
        if request.tool_name == PYTHON and SHELL in self._denied:  # Python could run any command
            return _no("denied", f"{SHELL} is in denied_tools")
        if self._allowed is not None and request.tool_name not in self._allowed:
            return _no("not_allowed", f"{request.tool_name} is not in allowed_tools")
        return GuardrailDecision(True)


def make_provider(settings: GuardrailsSettings) -> object | None:
    """Return the configured provider; None if there is none or guardrails are disabled."""
    if not settings.enabled or settings.provider is None:
        return None
    use = settings.provider.use
    build = cast("Callable[..., object]", resolve_use(use))
    try:
        provider = build(**settings.provider.config)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"guardrails.provider.config does not fit {use}: {error}") from error
    if not callable(getattr(provider, "evaluate", None)) and not callable(
        getattr(provider, "aevaluate", None)
    ):
        raise ConfigError(f"guardrails.provider: {use} has neither `evaluate` nor `aevaluate`")
    return provider


async def ask_provider(provider: object, request: GuardrailRequest) -> GuardrailDecision:
    """Return a provider's decision; a synchronous provider runs in a thread."""
    asynchronous = getattr(provider, "aevaluate", None)
    if asynchronous is not None:
        found = asynchronous(request)
        decision = await found if inspect.isawaitable(found) else found
    else:
        evaluate = cast("Callable[[GuardrailRequest], Any]", getattr(provider, "evaluate"))  # noqa: B009
        decision = await asyncio.to_thread(evaluate, request)
    if not isinstance(getattr(decision, "allow", None), bool):
        raise TypeError(f"{type(provider).__name__} returned no decision")
    return cast(GuardrailDecision, decision)


def words(decision: GuardrailDecision) -> str:
    """Return the reasons of a decision as one sentence."""
    said = [getattr(reason, "message", "") or getattr(reason, "code", "") for reason in decision.reasons]
    return "; ".join(text for text in said if text) or "the guardrail provider gave no reason"


def _no(code: str, message: str) -> GuardrailDecision:
    return GuardrailDecision(False, (GuardrailReason(code, message),))
