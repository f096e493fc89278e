"""Encode run requests, token usage and interrupts as JSON that older and newer versions can read."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import orjson

from deerflow.domain import DisconnectMode, ModelUse, MultitaskStrategy, RunOptions, RunRequest, TokenUse
from deerflow.errors import InvalidInputError

_NAMES: dict[type, frozenset[str]] = {
    kind: frozenset(field.name for field in dataclasses.fields(kind))
    for kind in (RunRequest, RunOptions, TokenUse, ModelUse)
}
_TUPLES = ("tags", "stream_modes", "interrupt_before", "interrupt_after")


def dump_request(request: RunRequest) -> bytes:
    """Return the request as JSON; `InvalidInputError` names the value that is not JSON-serializable."""
    return dump_json(request, what="the run request")


def load_request(data: bytes) -> RunRequest:
    """Return the request that `dump_request` encoded; fields of newer versions are ignored."""
    fields = _known(RunRequest, orjson.loads(data))
    for name in _TUPLES:
        if isinstance(fields.get(name), list):
            fields[name] = tuple(fields[name])
    if "options" in fields:
        fields["options"] = RunOptions(**_known(RunOptions, fields["options"]))
    if "on_disconnect" in fields:
        fields["on_disconnect"] = DisconnectMode(fields["on_disconnect"])
    if "multitask_strategy" in fields:
        fields["multitask_strategy"] = MultitaskStrategy(fields["multitask_strategy"])
    return RunRequest(**fields)


def dump_usage(usage: TokenUse) -> str:
    """Return token usage as JSON."""
    return orjson.dumps(usage).decode()


def load_usage(text: str | None) -> TokenUse:
    """Return the token usage that `dump_usage` encoded."""
    if not text:
        return TokenUse()
    fields = _known(TokenUse, orjson.loads(text))
    models = {name: ModelUse(**_known(ModelUse, use)) for name, use in fields.get("models", {}).items()}
    return TokenUse(**{**fields, "models": models})


def dump_questions(questions: Mapping[str, Any]) -> str | None:
    """Return the interrupts of a thread as JSON; None when there are none."""
    return dump_json(questions, what="a question").decode() if questions else None


def dump_json(value: Any, *, what: str, is_sorted: bool = False) -> bytes:
    """Return `value` as JSON; with sorted keys, equal values give equal bytes."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS if is_sorted else None)
    except orjson.JSONEncodeError as error:
        raise InvalidInputError(f"{what} holds something that is not JSON: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value of type {type(value).__name__}")


def _known(kind: type, fields: Mapping[str, Any]) -> dict[str, Any]:
    names = _NAMES[kind]
    return {name: value for name, value in fields.items() if name in names}
