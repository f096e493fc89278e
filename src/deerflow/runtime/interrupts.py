"""Interrupts that wait for an answer: matches answers to them, lists them, and times them out.

LangGraph requires answers keyed by interrupt id as soon as more than one waits. Clients written for one
question at a time send a list of decisions, or one decision with the hash of its call.

An interrupt holds its own expiry and is in the thread's checkpoint. So every server can find the expired
ones, also after a restart; the idempotency key of the answering run ensures that only one run is started,
however many servers find it.
"""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.types import Interrupt

from deerflow.config import GuardrailsSettings
from deerflow.domain import (
    DisconnectMode,
    MultitaskStrategy,
    RunOptions,
    RunRecord,
    RunRequest,
    Thread,
    ThreadStatus,
)
from deerflow.errors import ConflictError, DeerFlowError, InvalidInputError, NotFoundError
from deerflow.periodic import Periodic
from deerflow.runtime.approval_cards import as_input, choice_in, declined, waiting_calls
from deerflow.runtime.inputs import DECLINED
from deerflow.runtime.serialization import to_json
from deerflow.runtime.states import ThreadStates
from deerflow.storage import RunStore, Storage, ThreadQuery, ThreadStore

logger = logging.getLogger(__name__)


async def match_answers(states: ThreadStates, runs: RunStore, request: RunRequest) -> RunRequest:
    """Return the request with its answers by interrupt id; a request without an answer is unchanged.

    An answer that sets no agent options goes to the agent that asked: another agent may not have the tool
    whose call waits.
    """
    command = request.command
    if command is None or command.get("resume") is None or request.checkpoint_id is not None:
        return request
    snapshot = await states.latest(request.thread_id)
    waiting = [interrupt for task in snapshot.tasks for interrupt in task.interrupts] if snapshot else []
    if not waiting:
        if snapshot is not None and snapshot.next:
            return request  # stopped at a breakpoint, which any resume value continues
        raise ConflictError(
            f"nothing in thread {request.thread_id} waits for an answer, so command.resume "
            f"{str(command['resume'])[:40]!a} has nowhere to go; it may have been given already"
        )
    answers = answers_by_interrupt(command["resume"], waiting)
    return await _with_options_of_asker(runs, replace(request, command={**command, "resume": answers}))


async def answer_by_message(states: ThreadStates, threads: ThreadStore, request: RunRequest) -> RunRequest:
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


async def _with_options_of_asker(runs: RunStore, request: RunRequest) -> RunRequest:
    if request.options != RunOptions() or request.context:
        return request
    asking = await runs.of_thread(request.thread_id, limit=1)
    if not asking:
        return request
    return replace(request, options=asking[0].request.options, context=asking[0].request.context)


def answers_by_interrupt(resume: Any, waiting: Sequence[Interrupt]) -> dict[str, Any]:
    """Return the answers by interrupt id; `ConflictError` if one is for an interrupt that does not wait."""
    known = {interrupt.id: interrupt for interrupt in waiting}
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
        return {
            interrupt.id: {"decisions": [each]} for interrupt, each in zip(waiting, decisions, strict=True)
        }
    given = _hashes(resume)
    found = [interrupt for interrupt in waiting if given and _hash_of(interrupt.value) in given]
    if len(found) == 1 and len(given) == 1:
        return {found[0].id: resume}
    raise ConflictError(
        f"{len(waiting)} questions wait for an answer; answer them by id: "
        f'{{"resume": {{"{waiting[0].id}": …}}}}, or with as many decisions in their order'
    )


def _check_hash(answer: Any, interrupt: Interrupt) -> None:
    wanted = _hash_of(interrupt.value)
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
    return isinstance(key, str) and re.fullmatch("[0-9a-f]{32}", key) is not None


_MAX_BYTES = 16 * 1024
"""A list may hold a thousand threads: the value of a longer interrupt is only in the thread's state."""


async def waiting_interrupts(states: ThreadStates, thread_id: str) -> dict[str, Any]:
    """Return the interrupts of a thread by graph task, as plain JSON."""
    waiting = await states.questions(thread_id)
    return {task: [_listed(interrupt) for interrupt in questions] for task, questions in waiting.items()}


def _listed(interrupt: Interrupt) -> Any:
    text = to_json(interrupt)
    return orjson.loads(text if len(text) <= _MAX_BYTES else to_json(replace(interrupt, value=None)))


StartRun = Callable[[RunRequest], Awaitable[RunRecord]]
Clock = Callable[[], datetime]

_PAGE = 100
_LEAST_PAUSE, _MAX_PAUSE = 0.25, 15.0
_MAX_CACHED = 20_000
"""How many threads are cached; beyond that, the cache is cleared and all are read again."""
_AGAIN_SECONDS = 60
"""The delay before a failed answer is tried again."""


@dataclass(frozen=True, slots=True)
class _CachedExpiry:
    """The cached expiry of a thread's interrupts."""

    updated_at: datetime
    until: datetime | None
    """When its first interrupt expires; None when none does."""


class QuestionTimeouts:
    """Times out the interrupts of all threads."""

    def __init__(
        self,
        *,
        storage: Storage,
        states: ThreadStates,
        start: StartRun,
        settings: Callable[[], GuardrailsSettings],
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """Args: `start` starts the run that sends the rejection."""
        self._storage = storage
        self._states = states
        self._start = start
        self._settings = settings
        self._clock = clock
        self._expiries: dict[str, _CachedExpiry] = {}
        self._poll = Periodic(self.reject_expired, self._interval, name="timing out questions")

    def start(self) -> None:
        self._poll.start()

    async def aclose(self) -> None:
        await self._poll.aclose()

    async def reject_expired(self) -> int:
        """Reject every expired interrupt; return how many runs were started."""
        await self._read_changed()
        due = [
            thread
            for thread, cached in self._expiries.items()
            if cached.until and cached.until < self._clock()
        ]
        return sum([await self._answer(thread_id) for thread_id in due])

    async def _read_changed(self) -> None:
        """Read the changed interrupted threads, latest change first; stops at a page without changes."""
        if len(self._expiries) > _MAX_CACHED:
            self._expiries.clear()
        is_first, offset = not self._expiries, 0
        while True:
            query = ThreadQuery(None, status=ThreadStatus.INTERRUPTED, limit=_PAGE, offset=offset)
            found = await self._storage.threads.search(query)
            changed = [thread for thread in found if self._has_changed(thread)]
            for thread in changed:
                questions = await self._waiting(thread.id)
                until = min(questions.values(), default=None)
                self._expiries[thread.id] = _CachedExpiry(thread.updated_at, until)
            if len(found) < _PAGE or (not changed and not is_first):
                return
            offset += _PAGE

    def _has_changed(self, thread: Thread) -> bool:
        cached = self._expiries.get(thread.id)
        return cached is None or cached.updated_at != thread.updated_at

    async def _waiting(self, thread_id: str) -> dict[str, datetime]:
        """Return the expiry of each interrupt of a thread, by its id."""
        head = await self._storage.checkpoints.aget_tuple({"configurable": {"thread_id": thread_id}})
        # Most threads of this status were only cancelled: seeing that does not require their messages.
        writes = (head.pending_writes if head is not None else None) or ()
        if not any(channel == INTERRUPT for _, channel, _ in writes):
            return {}
        interrupts = await self._interrupts(thread_id)
        return {each.id: until for each in interrupts if (until := expiry(each.value)) is not None}

    async def _interrupts(self, thread_id: str) -> list[Interrupt]:
        waiting = await self._states.questions(thread_id)
        return [interrupt for interrupts in waiting.values() for interrupt in interrupts]

    async def _answer(self, thread_id: str) -> bool:
        cached = self._expiries.pop(thread_id)
        try:
            request = await self._rejection(thread_id)
            if request is None:  # answered, or no run to copy: skip it until it changes
                self._expiries[thread_id] = replace(cached, until=None)
                return False
            run = await self._start(request)
        except ConflictError:
            return False  # it was answered, or the thread is busy again
        except DeerFlowError as error:
            logger.warning("thread %s: its question could not be timed out: %s", thread_id, error)
            later = self._clock() + timedelta(seconds=_AGAIN_SECONDS)
            self._expiries[thread_id] = replace(cached, until=later)
            return False
        logger.info("thread %s: nobody answered in time, run %s goes on with a rejection", thread_id, run.id)
        return True

    async def _rejection(self, thread_id: str) -> RunRequest | None:
        """Return the request that rejects the expired interrupts, with the options of the run that asked."""
        expired = [
            each
            for each in await self._interrupts(thread_id)
            if (until := expiry(each.value)) and until < self._clock()
        ]
        last = await self._storage.runs.of_thread(thread_id, limit=1)
        if not expired or not last:
            return None
        seconds = self._settings().ask_timeout_seconds
        reason = f"nobody answered within {seconds:g} seconds (guardrails.ask_timeout_seconds)"
        rejected = {"decisions": [{"type": "reject", "message": reason}]}
        return replace(
            last[0].request,
            input=None,
            command={"resume": {each.id: rejected for each in expired}},
            checkpoint_id=None,
            after_seconds=None,
            on_disconnect=DisconnectMode.CONTINUE,
            multitask_strategy=MultitaskStrategy.REJECT,
            idempotency_key=key_of(thread_id, expired),
        )

    def _interval(self) -> float:
        """Return the polling interval: a short timeout needs a short interval."""
        return min(max(self._settings().ask_timeout_seconds / 10, _LEAST_PAUSE), _MAX_PAUSE)


def expiry(question: Any) -> datetime | None:
    """Return when an interrupt expires; None if it never does."""
    text = question.get("expires_at") if isinstance(question, Mapping) else None
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def key_of(thread_id: str, questions: Sequence[Interrupt]) -> str:
    """Return the idempotency key of exactly these interrupts: the next interrupt may have the same id."""
    parts = sorted(f"{each.id} {each.value.get('hash')} {each.value['expires_at']}" for each in questions)
    return f"ask-timeout-{hashlib.sha256(' '.join([thread_id, *parts]).encode()).hexdigest()}"
