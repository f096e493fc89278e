"""Shows approval interrupts as clarification messages, for clients that do not support interrupts.

A card is a message like the result of `ask_clarification`. It is appended to the conversation while the
call waits and is not part of the thread's state, so no model reads it. Choosing one of its options, or
sending an option's label as text, resumes the interrupt.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall, ToolMessage
from langgraph.types import Interrupt, StateSnapshot

from deerflow.agents.middlewares.approval import MARK, is_users
from deerflow.domain import new_id
from deerflow.domain.language import is_chinese
from deerflow.domain.visible_text import visible

CARD = "approval_card"
"""Marks a card in `additional_kwargs`; clients that show interrupts skip it."""
MAX_SHOWN_BYTES = 12 * 1024
"""A card can only reject a larger call: what is not shown in full must not be approved."""
_PREFIX = "approval"
_DECISIONS: Mapping[str, Mapping[str, Any]] = {
    "approve": {"type": "approve"},
    "approve-thread": {"type": "approve", "remember": "thread"},
    "approve-always": {"type": "approve", "remember": "always"},
    "reject": {"type": "reject", "message": ""},
}
_LABELS = {
    "en": {
        "approve": "Run it",
        "approve-thread": "Always allow in this thread",
        "approve-always": "Always allow",
        "reject": "Refuse",
    },
    "zh": {
        "approve": "执行",
        "approve-thread": "在此对话中始终允许",
        "approve-always": "始终允许",
        "reject": "拒绝",
    },
}
_QUESTION = {"en": "May `{name}` run?", "zh": "允许执行 `{name}` 吗？"}
_SUBAGENT = {"en": "The sub-agent “{name}” asks.", "zh": "子智能体“{name}”请求许可。"}
_REASONS = {
    "en": {
        "rule": "The settings let you decide about calls like this one (rule {rule} of guardrails.rules).",
        "host": "The command would run on the host itself, without a sandbox around it.",
        "obeyed_file": "Programs on the host execute or obey the file that would be written.",
        "outside": "This tool changes something outside that cannot be taken back.",
        "skill_create": "A new skill can be used in all later conversations.",
        "skill_change": "The changed skill is used in all later conversations, without a comparison.",
        "skill_delete": "The skill would be deleted; its versions stay.",
    },
    "zh": {
        "rule": "设置要求由你决定这类调用（guardrails.rules 第 {rule} 条规则）。",
        "host": "该命令将直接在主机上运行，没有沙箱隔离。",
        "obeyed_file": "主机上的程序会执行或遵从将要写入的文件。",
        "outside": "该工具会改变外部内容，且无法撤销。",
        "skill_create": "新技能可用于之后的所有对话。",
        "skill_change": "修改后的技能将不经比较，直接用于之后的所有对话。",
        "skill_delete": "该技能将被删除，其历史版本会保留。",
    },
}
_TOO_LONG = {
    "en": "The call is too long to be shown here. Approve it where all of it is shown, or refuse it.",
    "zh": "该调用过长，无法在此完整显示。请在能完整显示的界面中批准；此处只能拒绝。",
}
INSTEAD = "a new message came instead of an answer"
DECLINED = (
    "Error: {name} was not run: it waited for a person, who wrote a new message instead of deciding about "
    "it. That message follows. Make the call again only if the message asks for it."
)


def cards_of(interrupts: Sequence[Interrupt], messages: Sequence[AnyMessage]) -> list[ToolMessage]:
    """Return the cards of all waiting calls, in the language of the conversation."""
    return [
        _card(interrupt, _language(messages)) for interrupt in interrupts if _action_in(interrupt) is not None
    ]


def with_cards(values: Mapping[str, Any], interrupts: Sequence[Interrupt]) -> Mapping[str, Any]:
    """Return a thread's values with the cards of waiting calls after the messages."""
    cards = cards_of(interrupts, values.get("messages", ()))
    return {**values, "messages": [*values.get("messages", ()), *cards]} if cards else values


def choice_in(message: Any, waiting: Sequence[Interrupt]) -> dict[str, Any] | None:
    """Return the answer to a card in a client's message, by interrupt id; None if there is none."""
    if not isinstance(message, Mapping):
        return None
    given = (message.get("additional_kwargs") or {}).get("human_input_response")
    if isinstance(given, Mapping):
        answered = [interrupt for interrupt in waiting if _request_id(interrupt) == given.get("request_id")]
        text, option = str(given.get("value") or "").strip(), str(given.get("option_id") or "")
        return {answered[0].id: _answer(answered[0], option, text)} if answered else None
    option = _option_of(_text_of(message.get("content")))
    return {waiting[0].id: _answer(waiting[0], option, "")} if option and len(waiting) == 1 else None


def waiting_calls(snapshot: StateSnapshot) -> list[Interrupt]:
    """Return the approval interrupts that wait in a thread."""
    interrupt = [each for task in snapshot.tasks for each in task.interrupts]
    return [each for each in interrupt if _action_in(each) is not None]


def declined(snapshot: StateSnapshot) -> list[ToolMessage]:
    """Return results for all calls of a waiting step, for a user who sends a new message instead.

    Results of the step's finished calls are included: they are stored only when the whole step is done.
    """
    messages = snapshot.values.get("messages", ())
    last = next((each for each in reversed(messages) if isinstance(each, AIMessage)), None)
    written = [task.result for task in snapshot.tasks if isinstance(task.result, Mapping)]
    done = [*messages, *(message for result in written for message in result.get("messages", ()))]
    found = {message.tool_call_id: message for message in done if isinstance(message, ToolMessage)}
    hashes = {
        interrupt.value.get("tool_call_id"): interrupt.value.get("hash")
        for interrupt in waiting_calls(snapshot)
    }
    return [
        found.get(call["id"] or "") or _declined(call, hashes.get(call["id"]))
        for call in (last.tool_calls if last is not None else ())
    ]


def as_input(result: ToolMessage) -> dict[str, Any]:
    """Return a tool result in the form of a run's input."""
    fields = ("type", "content", "tool_call_id", "name", "status", "id", "additional_kwargs", "artifact")
    return {name: value for name in fields if (value := getattr(result, name, None)) is not None}


def _declined(call: ToolCall, call_hash: str | None) -> ToolMessage:
    return ToolMessage(
        DECLINED.format(name=call["name"]),
        tool_call_id=call["id"] or "",
        name=call["name"],
        id=new_id(),
        status="error",
        additional_kwargs={MARK: {"decision": "reject", "hash": call_hash, "reason": INSTEAD}},
    )


def _card(interrupt: Interrupt, language: str) -> ToolMessage:
    action = _action_in(interrupt) or {}
    shown = _shown(action)
    is_whole = len(shown.encode()) <= MAX_SHOWN_BYTES
    options = [
        {"id": option, "label": label, "value": label}
        for option, label in _LABELS[language].items()
        if option == "reject" or (is_whole and _is_offered(option, interrupt.value))
    ]
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    body = f"{fence}\n{shown}\n{fence}" if is_whole else _TOO_LONG[language]
    name = visible(str(action.get("name", ""))).replace("`", "")
    question = f"{_QUESTION[language].format(name=name)}\n\n{body}"
    context = _reason(interrupt.value, action, language)
    request = {
        "version": 1,
        "kind": "human_input_request",
        "source": "ask_clarification",
        "request_id": _request_id(interrupt),
        "tool_call_id": f"{_PREFIX}:{interrupt.id}",
        "clarification_type": "risk_confirmation",
        "question": question,
        "context": context,
        "input_mode": "choice_with_other",
        "options": options,
    }
    listed = "\n".join(f"{number}. {option['label']}" for number, option in enumerate(options, 1))
    return ToolMessage(
        f"{context}\n\n{question}\n\n{listed}",
        id=f"{_PREFIX}-{interrupt.id}",
        name="ask_clarification",
        tool_call_id=f"{_PREFIX}:{interrupt.id}",
        artifact={"human_input": request},
        additional_kwargs={CARD: True},
    )


def _reason(request: Mapping[str, Any], action: Mapping[str, Any], language: str) -> str:
    known = _REASONS[language].get(str(request.get("reason_code")))
    if known is None:
        return visible(str(action.get("description") or ""))
    subagent = request.get("subagent")
    parts = [
        visible(str(request.get("problem") or "")),
        _SUBAGENT[language].format(name=visible(str(subagent))) if subagent else "",
        known.format(rule=request.get("rule")),
    ]
    return "\n".join(filter(None, parts))


def _shown(action: Mapping[str, Any]) -> str:
    """Return the arguments as text; a long one is cut just above the limit, so the text stays too long."""
    texts = {
        str(key): value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
        for key, value in dict(action.get("args") or {}).items()
    }
    most = MAX_SHOWN_BYTES + 1
    return "\n".join(f"{visible(key[:most])}: {visible(text[:most])}" for key, text in texts.items())


def _answer(interrupt: Interrupt, option: str, text: str) -> dict[str, Any]:
    """Return the decision; text that matches no option rejects the call, with the text as the reason."""
    chosen = option if option in _DECISIONS else _option_of(text)
    decision = _DECISIONS.get(chosen) or {"type": "reject", "message": text}
    given = interrupt.value.get("hash")
    return {"decisions": [dict(decision)], **({} if given is None else {"hash": given})}


def _option_of(text: str) -> str:
    """Return the option with this label; empty when there is none."""
    wanted = text.strip().casefold()
    labels = (pair for language in _LABELS.values() for pair in language.items())
    return next((option for option, label in labels if label.casefold() == wanted), "")


def _is_offered(option: str, request: Mapping[str, Any]) -> bool:
    scope = _DECISIONS[option].get("remember")
    return scope is None or scope in (request.get("remember") or ())


def _request_id(interrupt: Interrupt) -> str:
    """Return a request id unique to this call: the next interrupt may have the same id."""
    return f"{_PREFIX}:{interrupt.id}:{str(interrupt.value.get('hash') or '')[:16]}"


def _action_in(interrupt: Interrupt) -> Mapping[str, Any] | None:
    actions = interrupt.value.get("action_requests") if isinstance(interrupt.value, Mapping) else None
    is_one = isinstance(actions, list) and len(actions) == 1 and isinstance(actions[0], Mapping)
    return actions[0] if is_one and isinstance(actions, list) else None


def _language(messages: Sequence[AnyMessage]) -> str:
    text = next(
        (each.text for each in reversed(messages) if isinstance(each, HumanMessage) and is_users(each)), ""
    )
    return "zh" if is_chinese(text[:MAX_SHOWN_BYTES]) else "en"


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else ()
    return "".join(str(block.get("text") or "") for block in blocks if isinstance(block, Mapping))
