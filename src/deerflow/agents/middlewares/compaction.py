"""Selects what remains of a long conversation: pure functions on messages, without a model.

Each stage applies only if the one before was not enough: old tool results are shortened to a line; old
messages are replaced by a summary; the remaining messages are truncated.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from deerflow.agents.message_markers import is_question, open_tasks
from deerflow.agents.middlewares.tokens import measure, measure_text
from deerflow.agents.state import Delegation, ThreadState
from deerflow.config import ContextSize

SHORT_RESULT_CHARS = 400
SHOWN_CHARS = 160
MAX_SKILLS = 8
MAX_DELEGATIONS = 50
SKILLS_ROOT = "/mnt/skills"
TASK = "task"


@dataclass(frozen=True, slots=True)
class Split:
    """A conversation, divided into messages that a summary replaces and messages that stay."""

    removed: list[AnyMessage]
    kept: list[AnyMessage]


def split(messages: Sequence[AnyMessage], keep: ContextSize, *, window: int | None = None) -> Split:
    """Divide `messages` by the keep policy; tool calls stay with their results.

    The user's question always stays, and so do the calls that started background tasks which have not
    ended: these tasks are identified, and resumed after a crash, by those messages.
    """
    question, step = _last(messages, is_question), _last(messages, lambda each: isinstance(each, AIMessage))
    cut = _whole_steps(messages, min(_first_kept(messages, keep, window), max(question, step, 0)))
    needed = {question} | _open_starts(messages, question)
    stays = [i >= cut or i in needed for i in range(len(messages))]
    return Split(
        [message for message, kept in zip(messages, stays, strict=True) if not kept],
        [message for message, kept in zip(messages, stays, strict=True) if kept],
    )


def smaller(one: Split, other: Split) -> Split:
    """Return the split that keeps fewer messages."""
    return one if len(one.kept) <= len(other.kept) else other


def _last(messages: Sequence[AnyMessage], fits: Callable[[AnyMessage], bool]) -> int:
    return next((i for i in range(len(messages) - 1, -1, -1) if fits(messages[i])), -1)


def _open_starts(messages: Sequence[AnyMessage], question: int) -> set[int]:
    """Return the indexes of responses that started unfinished tasks, and of all their results."""
    turn = list(enumerate(messages))[question + 1 :]
    waiting = open_tasks([message for _, message in turn])
    if not waiting:
        return set()
    steps = [(i, {call["id"] for call in each.tool_calls}) for i, each in turn if isinstance(each, AIMessage)]
    starts = [(i, calls) for i, calls in steps if calls & waiting]
    calls = {call for _, step in starts for call in step}
    results = {i for i, each in turn if isinstance(each, ToolMessage) and each.tool_call_id in calls}
    return {i for i, _ in starts} | results


def _first_kept(messages: Sequence[AnyMessage], keep: ContextSize, window: int | None) -> int:
    if keep.type == "messages" or (keep.type == "fraction" and window is None):
        count = int(keep.value) if keep.type == "messages" else 10
        return max(len(messages) - count, 0)
    budget = keep.value if keep.type == "tokens" else keep.value * (window or 0)
    for position in range(len(messages) - 1, -1, -1):
        budget -= measure([messages[position]])
        if budget < 0:
            return position + 1
    return 0


def _whole_steps(messages: Sequence[AnyMessage], cut: int) -> int:
    """Move the cut back to the response whose tool results it would separate."""
    while 0 < cut < len(messages) and isinstance(messages[cut], ToolMessage):
        cut -= 1
    return cut


def stale_results(messages: Sequence[AnyMessage], keep: Collection[str | None]) -> list[str]:
    """Return the ids of long tool results outside the kept messages, oldest first."""
    return [
        message.id
        for message in messages
        if isinstance(message, ToolMessage)
        and message.id
        and message.id not in keep
        and len(message.text) > SHORT_RESULT_CHARS
    ]


def without_results(messages: Sequence[AnyMessage], dropped: Collection[str]) -> list[AnyMessage]:
    """Return `messages` with each dropped result shortened to a line."""
    return [
        _line(message) if isinstance(message, ToolMessage) and message.id in dropped else message
        for message in messages
    ]


def _line(message: ToolMessage) -> ToolMessage:
    text = message.text
    if len(text) <= SHORT_RESULT_CHARS:
        return message
    start = " ".join(text[:SHOWN_CHARS].split())
    note = f"[Old result, {len(text)} characters, left out; make the call again if you need it.] {start}…"
    return message.model_copy(update={"content": note})


def clipped(messages: Sequence[AnyMessage], tokens: int) -> list[AnyMessage]:
    """Return `messages` truncated to `tokens`: the middle of the longest text is cut first."""
    found = list(messages)
    for _ in range(8):
        excess = measure(found) - tokens
        if excess <= 0:
            break
        found = _clip_longest(found, excess)
    return found


def _clip_longest(messages: list[AnyMessage], excess: int) -> list[AnyMessage]:
    # Ranked by text alone: calls and images cannot be cut.
    place = max(range(len(messages)), key=lambda i: len(messages[i].text))
    message = messages[place]
    text = message.text
    left = max(len(text) - excess * 4 - SHOWN_CHARS, SHORT_RESULT_CHARS)
    if len(text) <= left:
        return messages
    half = left // 2
    short = f"{text[:half]}\n[{len(text) - left} characters left out: no room]\n{text[len(text) - half :]}"
    return [*messages[:place], message.model_copy(update={"content": short}), *messages[place + 1 :]]


def durable_state(
    removed: Iterable[AnyMessage], state: ThreadState, *, readers: Collection[str]
) -> dict[str, Any]:
    """Return the state that must outlive the removed messages: skills read and tasks delegated."""
    skills = list(state.get("skill_context") or ())
    delegations = list(state.get("delegations") or ())
    results: dict[str, str] = {}
    calls: list[Mapping[str, Any]] = []
    for message in removed:
        if isinstance(message, ToolMessage):
            results[message.tool_call_id] = message.text
        elif isinstance(message, AIMessage):
            calls += message.tool_calls
    for call in calls:
        path = call["args"].get("path")
        if call["name"] in readers and isinstance(path, str) and path.startswith(SKILLS_ROOT):
            skills = [*(known for known in skills if known != path), path]
        elif call["name"] == TASK:
            delegations.append(_delegation(call["args"], results.get(call["id"] or "", "")))
    return {"skill_context": skills[-MAX_SKILLS:], "delegations": delegations[-MAX_DELEGATIONS:]}


def _delegation(arguments: Mapping[str, Any], result: str) -> Delegation:
    return Delegation(
        description=str(arguments.get("description") or arguments.get("prompt") or "")[:SHOWN_CHARS],
        result=" ".join(result[: SHOWN_CHARS * 2].split()),
    )


def summary_message(state: Mapping[str, Any], present: Collection[str | None]) -> HumanMessage | None:
    """Return the message that replaces the removed ones; None without a summary."""
    summary = state.get("summary_text")
    if not summary:
        return None
    files = [file["path"] for file in state.get("uploaded_files") or () if file["message_id"] not in present]
    parts = [
        str(summary),
        _section("Files uploaded earlier:", files),
        _section("Skills read earlier (read again before you use them):", state.get("skill_context")),
        _section(
            "Tasks given to sub-agents:",
            [f"{one['description']}: {one['result']}" for one in state.get("delegations") or ()],
        ),
        _section("Your plan:", [f"[{one['status']}] {one['content']}" for one in state.get("todos") or ()]),
    ]
    body = "\n\n".join(part for part in parts if part)
    return HumanMessage(
        f"<conversation-summary>\nWhat was said before, summed up:\n{body}\n</conversation-summary>",
        additional_kwargs={"hide_from_ui": True},
    )


def _section(title: str, lines: Iterable[str] | None) -> str:
    found = [f"- {line}" for line in lines or ()]
    return "\n".join([title, *found]) if found else ""


def transcript(messages: Iterable[AnyMessage], tokens: int | None) -> str:
    """Return the newest `tokens` of the messages as text for the summarizing model."""
    lines = [_spoken(message) for message in messages]
    found: list[str] = []
    left = tokens if tokens is not None else 1 << 62
    for line in reversed(lines):
        left -= measure_text(line)
        if left < 0:
            found.append("[older messages left out]")
            break
        found.append(line)
    return "\n".join(reversed(found))


def _spoken(message: AnyMessage) -> str:
    text = " ".join(message.text.split())
    if isinstance(message, ToolMessage):
        return f"Result of {message.name or 'tool'}: {text[: SHOWN_CHARS * 2]}"
    if isinstance(message, AIMessage):
        calls = ", ".join(f"{call['name']}({str(call['args'])[:SHOWN_CHARS]})" for call in message.tool_calls)
        return f"Assistant: {text[:2000]}{f' [calls {calls}]' if calls else ''}"
    return f"User: {text[:4000]}"


def extract(previous: str, messages: Iterable[AnyMessage], tokens: int) -> str:
    """Return a summary made of excerpts, for when no model can write one."""
    lines = previous.splitlines()
    for message in messages:
        text = " ".join(message.text.split())[: SHOWN_CHARS * 2]
        if isinstance(message, HumanMessage) and text:
            lines.append(f"- The user asked: {text}")
        elif isinstance(message, AIMessage) and text and not message.tool_calls:
            lines.append(f"- The answer was: {text}")
    while lines and measure_text("\n".join(lines)) > tokens:
        del lines[: max(len(lines) // 10, 1)]
    return "\n".join(lines)
