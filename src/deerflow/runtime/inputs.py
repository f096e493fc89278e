"""Converts a client's input and command to the graph's, rejecting what the graph cannot use."""

from collections.abc import Collection, Mapping
from typing import Any, get_type_hints

from langchain_core.messages import BaseMessage, convert_to_messages
from langgraph.constants import END
from langgraph.types import Command, Send
from pydantic import TypeAdapter, ValidationError

from deerflow.agents import ThreadState
from deerflow.domain import RunRequest, is_thread_id, new_id
from deerflow.errors import ConflictError, InvalidInputError
from deerflow.storage.encoding import dump_json

DECLINED = "declined"
"""The key, in a stored command, of the results of declined calls; clients must not send it."""


def graph_input(request: RunRequest) -> Any:
    """Return the graph's input for the first attempt at a run."""
    raw = dict(request.command or {})
    results = raw.pop(DECLINED, ())
    command = _command(raw)
    if command is not None:
        return command
    if request.input is None:
        return None
    # Clients may send keys that are not in the state, such as their own.
    known = {key: value for key, value in request.input.items() if key in KNOWN}
    if not known:
        raise InvalidInputError(
            f"input has nothing that an agent takes, only the keys {sorted(request.input)[:20]}: "
            "send input.messages, or input null to go on from the thread's state"
        )
    if results:
        messages = known.get("messages") or []
        known["messages"] = [*results, *(messages if isinstance(messages, list) else [messages])]
    return validated(known, where="input")


def with_message_ids(values: Mapping[str, Any] | None, *, where: str = "input") -> Mapping[str, Any] | None:
    """Return an input whose messages all have ids, so that every attempt adds the same messages.

    Malformed messages are rejected here, before a run is admitted.

    Args:
        where: The field that holds the messages, for the error.
    """
    if values is None or "messages" not in values:
        return values
    raw = values["messages"]
    parse_messages(raw, where=where)
    messages = raw if isinstance(raw, list) else [raw]
    return {**values, "messages": [_with_id(message) for message in messages]}


def with_update_ids(command: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a command whose messages all have ids; a malformed update is left to `graph_input`."""
    match (command or {}).get("update"):
        case dict() as update:
            return {**(command or {}), "update": with_message_ids(update, where="command.update")}
        case list() as pairs if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            each = [with_message_ids({str(key): value}, where="command.update") or {} for key, value in pairs]
            return {**(command or {}), "update": [list(pair) for one in each for pair in one.items()]}
    return command


def check_same_input(first: RunRequest, again: RunRequest) -> None:
    """Raise `ConflictError` if the same idempotency key was sent before with another input."""
    if _comparable(first) != _comparable(again):
        raise ConflictError(
            "this Idempotency-Key was sent before with another input; nothing was started. "
            "Send a new key with a new request"
        )


def _comparable(request: RunRequest) -> bytes:
    """Return an input without its message ids, which are new each time a client sends none.

    Commands are not compared: an answer is rewritten once its interrupt is known.
    """
    values = dict(with_message_ids(request.input) or {})
    messages = [
        {key: value for key, value in message.items() if key != "id"}
        if isinstance(message, Mapping)
        else message
        for message in values.get("messages", ())
    ]
    return dump_json({**values, "messages": messages}, what="the input", is_sorted=True)


def check_thread_id(thread_id: str) -> None:
    """Raise `InvalidInputError` for an invalid thread id."""
    if not is_thread_id(thread_id):
        raise InvalidInputError(
            f"thread id {thread_id[:80]!a} cannot be used: 1 to 64 letters, digits, '-' and '_'"
        )


def _with_id(message: Any) -> Any:
    if isinstance(message, str):
        return {"type": "human", "content": message, "id": new_id()}
    if isinstance(message, dict) and not message.get("id"):
        return {**message, "id": new_id()}
    return message


def check_goto(request: RunRequest, nodes: Collection[str]) -> None:
    """Raise `InvalidInputError` if a command's `goto` names a node that the agent does not have."""
    goto = (request.command or {}).get("goto")
    unknown = [name for each in _each(goto) if (name := _node_of(each)) not in (*nodes, END)]
    if unknown:
        shown = sorted(name for name in nodes if not name.startswith("__"))
        raise InvalidInputError(f"command.goto names {unknown}, but this agent has only {shown}")


def _command(raw: Mapping[str, Any]) -> Command[Any] | None:
    """Return a command; None for an empty one."""
    known = {"resume", "goto", "update"}
    unknown = sorted(set(raw) - known)
    if unknown:
        raise InvalidInputError(f"command has unknown keys {unknown}; allowed are {sorted(known)}")
    resume, goto, update = raw.get("resume"), raw.get("goto"), raw.get("update")
    if resume is None and not goto and not update:
        return None
    return Command(resume=resume, goto=[_target(each) for each in _each(goto)], update=_update(update))


def _target(raw: Any) -> str | Send:
    match raw:
        case str():
            return raw
        case {"node": str(node), "input": dict(values), **rest} if not rest:
            return Send(node, validated(values, where="command.goto.input"))
    raise InvalidInputError(
        'command.goto is the name of a node, {"node": "…", "input": {…}}, or a list of these; '
        f"not {raw!r:.80}"
    )


def _update(raw: Any) -> Any:
    where = "command.update"
    match raw:
        case None:
            return None
        case dict():
            return validated(raw, where=where)
        case list() if all(isinstance(pair, list) and len(pair) == 2 for pair in raw):
            return [item for key, value in raw for item in validated({str(key): value}, where=where).items()]
    raise InvalidInputError(f"{where} is an object, or a list of pairs of key and value; not {raw!r:.80}")


def _each(goto: Any) -> list[Any]:
    if not goto:
        return []
    return goto if isinstance(goto, list) else [goto]


def _node_of(target: Any) -> Any:
    return target.get("node") if isinstance(target, dict) else target


_SHAPES = {
    key: TypeAdapter(shape)
    for key, shape in get_type_hints(ThreadState).items()
    if key not in ("messages", "jump_to", "structured_response")
}
"""The excluded keys are LangChain's own."""
KNOWN = frozenset({*_SHAPES, "messages"})


def validated(values: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Return validated values, with messages parsed; `InvalidInputError` names the invalid one.

    Args:
        where: The field that holds the values, for the error.
    """
    unknown = sorted(set(values) - KNOWN)
    if unknown:
        raise InvalidInputError(f"{where} has unknown keys {unknown}; known are {sorted(KNOWN)}")
    return {key: _validated(key, value, where) for key, value in values.items()}


def _validated(key: str, value: Any, where: str) -> Any:
    if key == "messages":
        return parse_messages(value, where=where)
    try:
        return _SHAPES[key].validate_python(value, strict=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, (where, key, *wrong["loc"])))
        raise InvalidInputError(f"{field} does not fit the state: {wrong['msg']}") from error


MAX_MESSAGES = 1000
MAX_BLOCKS = 1000


def parse_messages(raw: Any, *, where: str = "input") -> list[BaseMessage]:
    """Parse messages in any of LangChain's dict formats; the error names the invalid one.

    Args:
        where: The field that holds the messages, for the error.
    """
    items = raw if isinstance(raw, list) else [raw]
    _check_size(items, where)
    parsed: list[BaseMessage] = []
    for index, item in enumerate(items):
        try:
            parsed += convert_to_messages([_normalised(item)])
        except (ValueError, TypeError, KeyError, NotImplementedError) as error:
            raise InvalidInputError(
                f"{where}.messages[{index}] is not a message: {_brief(error)}. "
                'Send {"role": "user", "content": "…"} or {"type": "human", "content": "…"}.'
            ) from error
    return parsed


def _check_size(items: list[Any], where: str) -> None:
    """Reject more messages or blocks than can be parsed without blocking the event loop too long."""
    if len(items) > MAX_MESSAGES:
        raise InvalidInputError(
            f"{where}.messages has {len(items)} messages; one request may add {MAX_MESSAGES}. "
            "Send the rest in further requests, such as POST /threads/{thread_id}/state."
        )
    for index, item in enumerate(items):
        content = item.get("content") if isinstance(item, dict) else None
        if isinstance(content, list) and len(content) > MAX_BLOCKS:
            raise InvalidInputError(
                f"{where}.messages[{index}].content has {len(content)} blocks; a message may have "
                f"{MAX_BLOCKS}. Join texts into one block, or upload a file."
            )


def _normalised(item: Any) -> Any:
    """Return a message dict with one key for its role: `type` and `role` may both be present."""
    if not isinstance(item, dict):
        return item
    if "type" in item and "role" in item:
        return {key: value for key, value in item.items() if key != "role"}
    return item


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
