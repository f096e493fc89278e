"""Converts the body of a request for a run into a `RunRequest`, with checks and the assistant's defaults."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from deerflow.app import DeerFlow
from deerflow.domain import LEAD_AGENT, Assistant, DisconnectMode, MultitaskStrategy, RunOptions, RunRequest
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.gateway.deps import contract_of, owned_thread
from deerflow.runtime.inputs import check_thread_id
from deerflow.skills.secrets import REQUEST_SECRETS

StreamMode = Literal[
    "values", "messages", "messages-tuple", "updates", "custom", "tasks", "checkpoints", "debug", "events"
]
_OPTION_NAMES = frozenset(RunOptions.__dataclass_fields__)
_MOST_DEFAULT_STEPS = 100
MOST_DELAY_SECONDS = 366 * 24 * 3600


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


GRAPH_PATH = "deerflow.agents:make_lead_agent"
"""The lead agent's graph in `langgraph.json`, which clients may use as its name."""


def _graph_name(name: object) -> object:
    return LEAD_AGENT if name == GRAPH_PATH else name


GraphName = Annotated[str, BeforeValidator(_graph_name)]


class RunCreate(BaseModel):
    """The body of a request for a run, as DeerFlow's and LangGraph's clients send it."""

    model_config = ConfigDict(extra="forbid")

    assistant_id: GraphName | None = None
    input: dict[str, Any] | None = None
    command: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    checkpoint: dict[str, Any] | None = None
    checkpoint_id: str | None = None
    interrupt_before: list[str] | Literal["*"] | None = None
    interrupt_after: list[str] | Literal["*"] | None = None
    stream_mode: Annotated[list[StreamMode], BeforeValidator(_as_list)] | None = None
    stream_subgraphs: bool = False
    on_disconnect: DisconnectMode | None = None
    multitask_strategy: MultitaskStrategy | None = None
    durability: Literal["sync", "async", "exit"] | None = None
    checkpoint_during: bool | None = None
    after_seconds: float | None = Field(None, ge=0, le=MOST_DELAY_SECONDS, allow_inf_nan=False)
    if_not_exists: Literal["create", "reject"] | None = None
    on_completion: Literal["delete", "keep"] | None = None
    webhook: str | None = Field(None, max_length=4096)
    # Accepted because LangGraph's clients send them; runs are always resumable.
    stream_resumable: bool | None = None
    strict_resume: bool | None = None
    feedback_keys: list[str] | None = None
    langsmith_tracer: dict[str, Any] | None = None

    def thread_id(self) -> str | None:
        """Return the thread that a stateless run names in its config."""
        thread_id = _mapping(self.config or {}, "configurable").get("thread_id")
        return thread_id if isinstance(thread_id, str) else None

    def checkpoint_in(self, configurable: Mapping[str, Any]) -> str | None:
        named = (self.checkpoint or {}).get("checkpoint_id") or (self.checkpoint or {}).get("id")
        chosen = self.checkpoint_id or named or configurable.get("checkpoint_id")
        return str(chosen) if chosen else None

    def durability_or_default(self) -> Literal["sync", "async", "exit"]:
        if self.durability is not None:
            return self.durability
        return "exit" if self.checkpoint_during is False else "async"


async def checked_request(
    deerflow: DeerFlow,
    body: RunCreate,
    *,
    thread_id: str,
    user_id: str,
    idempotency_key: str | None = None,
    is_stateless: bool = False,
) -> RunRequest:
    """Convert a body into a request; `NotFoundError` if it names a thread or checkpoint that does not exist.

    Args:
        is_stateless: The thread is created for this run; only such a thread may be deleted with it.
    """
    check_thread_id(thread_id)
    if not is_stateless and (body.if_not_exists or contract_of(deerflow).if_not_exists) == "reject":
        await owned_thread(deerflow, thread_id, user_id)
    if idempotency_key is not None and not is_stateless:
        # A key is scoped to its thread: the same key on another thread is another request.
        idempotency_key = f"{thread_id}\n{idempotency_key}"
    request = await to_request(
        deerflow,
        body,
        thread_id=thread_id,
        user_id=user_id,
        idempotency_key=idempotency_key,
        is_stateless=is_stateless,
    )
    if request.checkpoint_id:
        await owned_thread(deerflow, thread_id, user_id)
        if await deerflow.state.latest(thread_id, checkpoint_id=request.checkpoint_id) is None:
            raise NotFoundError("checkpoint", request.checkpoint_id)
    return request


async def to_request(
    deerflow: DeerFlow,
    body: RunCreate,
    *,
    thread_id: str,
    user_id: str,
    idempotency_key: str | None = None,
    is_stateless: bool = False,
) -> RunRequest:
    """Convert a body with the defaults of its assistant; `NotFoundError` for an unknown assistant."""
    if body.webhook:
        await deerflow.webhooks.check(body.webhook)
    _check_metadata(body)
    assistant, contract = await _assistant(deerflow, body, user_id), contract_of(deerflow)
    config = {**(assistant.config if assistant else {}), **(body.config or {})}
    configurable = _mapping(config, "configurable")
    context = {
        **({**_mapping(assistant.config, "configurable"), **assistant.context} if assistant else {}),
        **configurable,
        **_mapping(config, "context"),
        **(body.context or {}),
    }
    # A client with an idempotency key sends the request again for the same run.
    on_disconnect = contract.on_disconnect if idempotency_key is None else DisconnectMode.CONTINUE
    return RunRequest(
        thread_id=thread_id,
        user_id=user_id,
        assistant_id=body.assistant_id or LEAD_AGENT,
        input=body.input,
        command=body.command,
        options=_options(context),
        context=await _sealed(deerflow, _extra_context(context)),
        metadata=_metadata({**_mapping(config, "metadata"), **(body.metadata or {})}),
        tags=_tags(config),
        stream_modes=tuple(body.stream_mode or ("values",)),
        stream_subgraphs=body.stream_subgraphs,
        on_disconnect=body.on_disconnect or on_disconnect,
        multitask_strategy=body.multitask_strategy or contract.multitask_strategy,
        checkpoint_id=body.checkpoint_in(configurable),
        recursion_limit=_recursion_limit(config, deerflow.settings.max_recursion_limit),
        interrupt_before=_nodes(body.interrupt_before),
        interrupt_after=_nodes(body.interrupt_after),
        durability=body.durability_or_default(),
        after_seconds=body.after_seconds or None,
        idempotency_key=idempotency_key,
        deletes_thread=is_stateless and (body.on_completion or contract.on_completion) == "delete",
        webhook=body.webhook or None,
    )


async def _assistant(deerflow: DeerFlow, body: RunCreate, user_id: str) -> Assistant | None:
    """Return the assistant whose defaults apply; None for the lead agent and custom agents."""
    name = body.assistant_id or LEAD_AGENT
    if name == LEAD_AGENT or await deerflow.is_custom_agent(name, user_id):
        return None
    return await deerflow.storage.assistants.get(name, user_id)


def _check_metadata(body: RunCreate) -> None:
    for metadata in (body.metadata or {}, _mapping(body.config or {}, "metadata")):
        if "auth_token" in metadata:
            raise InvalidInputError("metadata must not carry auth_token: secrets do not belong into metadata")


def _options(context: Mapping[str, Any]) -> RunOptions:
    chosen = {key: value for key, value in context.items() if key in _OPTION_NAMES and value is not None}
    for key, value in chosen.items():
        expected = _OPTION_TYPES[key]
        if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
            raise InvalidInputError(f"context.{key} must be {_TYPE_WORDS[expected]}, not {value!r:.80}")
    for key in ("max_concurrent_subagents", "max_total_subagents"):
        if key in chosen and not 1 <= chosen[key] <= 1000:
            raise InvalidInputError(f"context.{key} must be between 1 and 1000, not {chosen[key]}")
    return RunOptions(**chosen)


_TYPE_WORDS: dict[type, str] = {str: "text", bool: "true or false", int: "a whole number"}
_OPTION_TYPES: dict[str, type] = {
    "model_name": str,
    "mode": str,
    "thinking_enabled": bool,
    "reasoning_effort": str,
    "is_plan_mode": bool,
    "subagent_enabled": bool,
    "max_concurrent_subagents": int,
    "max_total_subagents": int,
    "agent_name": str,
    "is_bootstrap": bool,
}


def _extra_context(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client's other keys, without those reserved for DeerFlow and the graph."""
    owned = {"thread_id", "user_id", "run_id", "checkpoint_id", "checkpoint_ns", "non_interactive"}
    return {
        key: value
        for key, value in context.items()
        if key not in _OPTION_NAMES and key not in owned and not key.startswith("__")
    }


async def _sealed(deerflow: DeerFlow, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context with its secrets encrypted: it is stored with the run."""
    if context.get(REQUEST_SECRETS) is None:
        return context
    sealed = await asyncio.to_thread(deerflow.skill_secrets.seal, context[REQUEST_SECRETS])
    return {**context, REQUEST_SECRETS: sealed}


def _metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (metadata or {}).items() if key not in ("owner_id", "user_id")}


def _mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key) or {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"config.{key} must be an object")
    return value


def _tags(config: Mapping[str, Any]) -> tuple[str, ...]:
    tags = config.get("tags") or ()
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidInputError(f"config.tags must be a list of texts, not {tags!r:.80}")
    return tuple(tags)


def _recursion_limit(config: Mapping[str, Any], most: int) -> int:
    wanted = config.get("recursion_limit", min(_MOST_DEFAULT_STEPS, most))
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        raise InvalidInputError(f"config.recursion_limit must be a whole number above 0, not {wanted!r:.80}")
    return min(wanted, most)


def _nodes(names: list[str] | Literal["*"] | None) -> tuple[str, ...] | Literal["*"]:
    return "*" if names == "*" else tuple(names or ())
