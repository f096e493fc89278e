"""Matches an answer to the interrupt that it resumes, and rejects an answer that matches none.

LangGraph requires answers keyed by interrupt id as soon as more than one waits. Clients written for one
question at a time send a list of decisions, or one decision with the hash of its call.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langgraph.types import Interrupt

from deerflow.domain import RunOptions, RunRequest
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.runtime.approval_cards import as_input, choice_in, declined, waiting_calls
from deerflow.runtime.inputs import DECLINED
from deerflow.runtime.states import ThreadStates
from deerflow.storage import RunStore, ThreadStore


async def fit_answer(states: ThreadStates, runs: RunStore, request: RunRequest) -> RunRequest:
    """Return the request with its answers by interrupt id; a request without an answer is unchanged.

    An answer that sets no agent options goes to the agent that asked: another agent may not have the tool
    whose call waits.
    """
    command = request.command
    if command is None or command.get("resume") is None or request.checkpoint_id is not None:
        return request
    snapshot = await states.latest(request.thread_id)
    waiting = [asked for task in snapshot.tasks for asked in task.interrupts] if snapshot else []
    if not waiting:
        if snapshot is not None and snapshot.next:
            return request  # stopped at a breakpoint, which any resume value continues
        raise ConflictError(
            f"nothing in thread {request.thread_id} waits for an answer, so command.resume "
            f"{str(command['resume'])[:40]!a} has nowhere to go; it may have been given already"
        )
    answers = by_question(command["resume"], waiting)
    return await _as_asked(runs, replace(request, command={**command, "resume": answers}))


async def heed_message(states: ThreadStates, threads: ThreadStore, request: RunRequest) -> RunRequest:
    """Turn a message that answers a waiting call into a resume command; any other message declines the call.

    A declined call gets a result that says so, for the user and the model. The result is part of the run's
    input, so that rolling the run back leaves the call waiting.
    """
    if DECLINED in (request.command or {}):
        raise InvalidInputError(f"command.{DECLINED} is the server's own; send resume, goto or update")
    messages = (request.input or {}).get("messages")
    has_command = any(value is not None for value in (request.command or {}).values())
    if not messages or has_command or request.checkpoint_id is not None:
        return request
    try:
        thread = await threads.get(request.thread_id, request.user_id)
    except NotFoundError:  # the run creates it, or is rejected
        return request
    snapshot = await states.latest(request.thread_id) if thread.interrupts else None
    waiting = waiting_calls(snapshot) if snapshot is not None else []
    if snapshot is None or not waiting:
        return request
    answer = choice_in(messages[-1] if isinstance(messages, list) else messages, waiting)
    if answer is not None:
        return replace(request, command={"resume": answer})
    return replace(request, command={DECLINED: [as_input(result) for result in declined(snapshot)]})


async def _as_asked(runs: RunStore, request: RunRequest) -> RunRequest:
    if request.options != RunOptions() or request.context:
        return request
    asked_in = await runs.of_thread(request.thread_id, limit=1)
    if not asked_in:
        return request
    return replace(request, options=asked_in[0].request.options, context=asked_in[0].request.context)


def by_question(resume: Any, waiting: Sequence[Interrupt]) -> dict[str, Any]:
    """Return the answers by interrupt id; `ConflictError` if one is for an interrupt that does not wait."""
    known = {asked.id: asked for asked in waiting}
    answers = _addressed(resume, known)
    if not answers:
        answers = _matched(resume, waiting)
    for interrupt_id, answer in answers.items():
        _check_hash(answer, known[interrupt_id])
    return answers


def _addressed(resume: Any, known: Mapping[str, Interrupt]) -> dict[str, Any]:
    if not isinstance(resume, Mapping) or not all(_is_id(key) for key in resume):
        return {}
    unknown = sorted(set(resume) - set(known))
    if unknown:
        raise ConflictError(
            f"question {unknown[0]} does not wait for an answer any more; waiting: {', '.join(known)}"
        )
    return dict(resume)


def _matched(resume: Any, waiting: Sequence[Interrupt]) -> dict[str, Any]:
    if len(waiting) == 1:
        return {waiting[0].id: resume}
    decisions = resume.get("decisions") if isinstance(resume, Mapping) else resume
    if isinstance(decisions, list) and len(decisions) == len(waiting):
        return {asked.id: {"decisions": [each]} for asked, each in zip(waiting, decisions, strict=True)}
    given = _hashes(resume)
    found = [asked for asked in waiting if given and _hash_of(asked.value) in given]
    if len(found) == 1 and len(given) == 1:
        return {found[0].id: resume}
    raise ConflictError(
        f"{len(waiting)} questions wait for an answer; answer them by id: "
        f'{{"resume": {{"{waiting[0].id}": …}}}}, or with as many decisions in their order'
    )


def _check_hash(answer: Any, asked: Interrupt) -> None:
    wanted = _hash_of(asked.value)
    if wanted is not None and any(given != wanted for given in _hashes(answer)):
        raise ConflictError(
            "the answer is about another call than the one that waits (the hash differs); nothing was run. "
            "Look at the question again and answer what it shows"
        )


def _hashes(answer: Any) -> set[Any]:
    """Return the call hashes that an answer names."""
    decisions = answer.get("decisions") if isinstance(answer, Mapping) else answer
    holders = [answer, *decisions] if isinstance(decisions, list) else [answer]
    return {
        holder["hash"] for holder in holders if isinstance(holder, Mapping) and holder.get("hash") is not None
    }


def _hash_of(question: Any) -> Any:
    return question.get("hash") if isinstance(question, Mapping) else None


def _is_id(key: Any) -> bool:
    return isinstance(key, str) and len(key) == 32 and all(letter in "0123456789abcdef" for letter in key)
