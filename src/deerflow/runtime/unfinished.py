"""Stores the partial answer of a run that was stopped or failed.

The text is read from the run's log, which has everything that readers saw, whichever process streamed it.
It is added to the conversation under the id that it was streamed with, marked with how it ended.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks

from deerflow.agents.langgraph_beta import MODEL_NODE
from deerflow.agents.messages import END_REASON, ENDED, FAILURE, NOTE
from deerflow.domain import RunRecord, RunStatus
from deerflow.domain.language import is_chinese
from deerflow.errors import StaleAttemptError, StorageAwayError
from deerflow.runtime.event_log import RunLog
from deerflow.runtime.states import ThreadStates
from deerflow.runtime.translate import visible_values
from deerflow.storage import EventLog, LogEntry, RunEnd
from deerflow.storage.fragments import render

logger = logging.getLogger(__name__)

FAILED_IN_ENGLISH = """\
**This answer failed.** {error}

To try again, regenerate this answer or send your message once more."""
FAILED_IN_CHINESE = """\
**这次回答失败了。** {error}

如需重试，请重新生成这条回答，或再次发送消息。"""
STOPPED = "stopped"
FAILED = "failed"
_MAX_ENTRIES = 1000
_CALLS = frozenset({"tool_use", "input_json_delta", "tool_call", "tool_call_chunk", "function_call"})
"""Content types of (partial) tool calls, which are dropped: half a call is useless."""


async def keep_unfinished(
    run: RunRecord, end: RunEnd, *, log: RunLog, events: EventLog, states: ThreadStates
) -> None:
    """Store a run's partial answer, and send the resulting conversation to the run's readers."""
    if end.status is RunStatus.SUCCESS or end.rolls_back:
        return
    try:
        await log.flush()
        answer = await unfinished_answer(events, run, end)
        values = await states.add_unfinished(run, answer, partial(failure_message, run, end))
    except (StaleAttemptError, StorageAwayError):
        raise
    except Exception:  # the run must end, with its partial answer or without
        logger.exception("run %s: the answer that it broke off could not be kept", run.id)
        return
    if values is not None:
        log.publish("values", visible_values(values))


async def unfinished_answer(events: EventLog, run: RunRecord, end: RunEnd) -> AIMessage | None:
    """Return the last answer in a run's log as far as it was streamed; None when it is empty."""
    entries = await _last_streamed(events, run.id)
    fragments = await events.fragments_of(run.thread_id, entries)
    # In a thread: a long answer has thousands of chunks.
    return await asyncio.to_thread(_joined, entries, fragments, _markers(end))


def failure_message(run: RunRecord, end: RunEnd, question: str) -> AIMessage | None:
    """Return the message that tells the user why an answer failed, and how to try again.

    None for a run that did not fail. The language is that of the client's `locale`, or else of the question.
    No model sees it, and a run that answers the question again removes it.
    """
    if end.status is RunStatus.INTERRUPTED or not end.error:
        return None
    locale = run.request.context.get("locale")
    chinese = locale.lower().startswith("zh") if isinstance(locale, str) and locale else is_chinese(question)
    shown_error = (end.error_in_chinese or end.error) if chinese else end.error
    markers = {
        **_markers(end),
        END_REASON: shown_error,
        NOTE: True,
        FAILURE: True,
        "error_type": end.stop_reason,
        "error_reason": end.error_reason or str(end.status),
        "error_detail": end.error,
    }
    text = (FAILED_IN_CHINESE if chinese else FAILED_IN_ENGLISH).format(error=shown_error)
    # The id is derived from the run, so that settling it twice adds one message.
    return AIMessage(text, id=f"failure-{run.id}", additional_kwargs=markers)


async def _last_streamed(events: EventLog, run_id: str) -> list[LogEntry]:
    """Return the last message chunks, those not yet contained in a whole state."""
    found: list[LogEntry] = []
    seq, is_over = -1, False
    while entries := await events.read(run_id, after_seq=seq, limit=_MAX_ENTRIES):
        for entry in entries:
            if entry.kind == "values":
                is_over = True  # earlier chunks are in it; they count only if none follow
            elif entry.kind == "messages":
                if is_over:
                    found = []
                is_over = False
                found.append(entry)
        seq = entries[-1].seq
    return found


def _joined(
    entries: Sequence[LogEntry], fragments: Mapping[int, bytes], markers: Mapping[str, str]
) -> AIMessage | None:
    pieces = [
        piece
        for piece, metadata in (orjson.loads(render(entry.body, fragments)) for entry in entries)
        if piece["type"] in ("AIMessageChunk", "ai") and metadata.get("langgraph_node") == MODEL_NODE
    ]
    if not pieces:
        return None
    message_id = pieces[-1]["id"]  # of several attempts at a call, the last one counts
    first, *others = [_chunk(piece) for piece in pieces if piece["id"] == message_id]
    whole = add_ai_message_chunks(first, *others)
    thoughts = whole.additional_kwargs
    if not whole.text.strip() and not thoughts and not _has_thoughts(whole):
        return None
    return AIMessage(whole.content, id=message_id, name=whole.name, additional_kwargs={**thoughts, **markers})


def _chunk(piece: Mapping[str, Any]) -> AIMessageChunk:
    """Return a chunk without its parts of tool calls."""
    content = piece["content"]
    if isinstance(content, list):
        content = [part for part in content if not isinstance(part, dict) or part.get("type") not in _CALLS]
    reasoning = (piece.get("additional_kwargs") or {}).get("reasoning_content")
    return AIMessageChunk(
        content=content,
        id=piece["id"],
        name=piece.get("name"),
        additional_kwargs={"reasoning_content": reasoning} if reasoning else {},
    )


def _has_thoughts(message: AIMessage) -> bool:
    blocks = message.content if isinstance(message.content, list) else []
    return any(
        isinstance(block, dict) and (block.get("thinking") or block.get("reasoning")) for block in blocks
    )


def _markers(end: RunEnd) -> dict[str, str]:
    if end.status is RunStatus.INTERRUPTED:
        return {ENDED: STOPPED}
    return {ENDED: FAILED, **({END_REASON: end.error} if end.error else {})}
