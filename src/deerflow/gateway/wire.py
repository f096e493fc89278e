"""The request body of a run, and its conversion into a `RunRequest`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from deerflow.domain import (
    LEAD_AGENT,
    Assistant,
    DisconnectMode,
    MultitaskStrategy,
    RunOptions,
    RunRequest,
)
from deerflow.errors import InvalidInputError
from deerflow.gateway.contract import CONTRACTS, Contract

StreamMode = Literal[
    "values", "messages", "messages-tuple", "updates", "custom", "tasks", "checkpoints", "debug", "events"
]
_OPTION_NAMES = frozenset(RunOptions.__dataclass_fields__)
_MOST_DEFAULT_STEPS = 100
MOST_DELAY_SECONDS = 366 * 24 * 3600


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class RunCreate(BaseModel):
    """The wish for a run, as DeerFlow and LangGraph clients write it."""

    model_config = ConfigDict(extra="forbid")

    assistant_id: str | None = None
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

    def to_request(
        self,
        thread_id: str,
        user_id: str,
        *,
        most_steps: int,
        idempotency_key: str | None = None,
        defaults: Assistant | None = None,
        is_stateless: bool = False,
        contract: Contract = CONTRACTS["deerflow"],
    ) -> RunRequest:
        """Convert the body into a `RunRequest`.

        Args:
            defaults: The assistant whose config and context apply where the request has none.
            is_stateless: The thread was created for this run; only such a thread may be deleted with it.
            contract: Defaults that apply where neither has a value.
        """
        self._refuse_what_cannot_be()
        config = {**(defaults.config if defaults else {}), **(self.config or {})}
        configurable = _mapping(config, "configurable")
        context = {
            **(_default_context(defaults) if defaults else {}),
            **configurable,
            **_mapping(config, "context"),
            **(self.context or {}),
        }
        return RunRequest(
            thread_id=thread_id,
            user_id=user_id,
            assistant_id=self.assistant_id or LEAD_AGENT,
            input=self.input,
            command=self.command,
            options=_options(context),
            context=_extra_context(context),
            metadata=_metadata({**_mapping(config, "metadata"), **(self.metadata or {})}),
            tags=_tags(config),
            stream_modes=tuple(self.stream_mode or ("values",)),
            stream_subgraphs=self.stream_subgraphs,
            on_disconnect=self.on_disconnect or _when_left(idempotency_key, contract),
            multitask_strategy=self.multitask_strategy or contract.multitask_strategy,
            checkpoint_id=self._checkpoint_id(configurable),
            recursion_limit=_steps(config, most_steps),
            interrupt_before=_nodes(self.interrupt_before),
            interrupt_after=_nodes(self.interrupt_after),
            durability=self._durability(),
            after_seconds=self.after_seconds or None,
            idempotency_key=idempotency_key,
            deletes_thread=is_stateless and (self.on_completion or contract.on_completion) == "delete",
            webhook=self.webhook or None,
        )

    def thread_id(self) -> str | None:
        """Return the thread that a stateless run names in its config."""
        thread_id = _mapping(self.config or {}, "configurable").get("thread_id")
        return thread_id if isinstance(thread_id, str) else None

    def _checkpoint_id(self, configurable: Mapping[str, Any]) -> str | None:
        named = (self.checkpoint or {}).get("checkpoint_id") or (self.checkpoint or {}).get("id")
        chosen = self.checkpoint_id or named or configurable.get("checkpoint_id")
        return str(chosen) if chosen else None

    def _durability(self) -> Literal["sync", "async", "exit"]:
        if self.durability is not None:
            return self.durability
        return "exit" if self.checkpoint_during is False else "async"

    def _refuse_what_cannot_be(self) -> None:
        for metadata in (self.metadata or {}, _mapping(self.config or {}, "metadata")):
            if "auth_token" in metadata:
                raise InvalidInputError(
                    "metadata must not carry auth_token: secrets do not belong into metadata"
                )


def _when_left(idempotency_key: str | None, contract: Contract) -> DisconnectMode:
    """Return the default on a disconnect: a client with an idempotency key retries for the same run."""
    return contract.on_disconnect if idempotency_key is None else DisconnectMode.CONTINUE


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


def _default_context(assistant: Assistant) -> dict[str, Any]:
    return {**_mapping(assistant.config, "configurable"), **assistant.context}


def _extra_context(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client's other keys, without those reserved for DeerFlow and the graph."""
    owned = {"thread_id", "user_id", "run_id", "checkpoint_id", "checkpoint_ns", "non_interactive"}
    return {
        key: value
        for key, value in context.items()
        if key not in _OPTION_NAMES and key not in owned and not key.startswith("__")
    }


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


def _steps(config: Mapping[str, Any], most: int) -> int:
    wanted = config.get("recursion_limit", min(_MOST_DEFAULT_STEPS, most))
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        raise InvalidInputError(f"config.recursion_limit must be a whole number above 0, not {wanted!r:.80}")
    return min(wanted, most)


def _nodes(names: list[str] | Literal["*"] | None) -> tuple[str, ...] | Literal["*"]:
    return "*" if names == "*" else tuple(names or ())
