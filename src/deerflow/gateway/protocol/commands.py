"""Parses and executes commands of the thread protocol and builds their responses, errors included."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from deerflow.app import DeerFlow
from deerflow.domain import MultitaskStrategy, RunRequest, RunStatus, is_thread_id, new_id
from deerflow.errors import DeerFlowError, InvalidInputError, NotFoundError
from deerflow.gateway.errors import STATUS
from deerflow.gateway.protocol.events import parse_filter
from deerflow.gateway.protocol.feed import applied_seq
from deerflow.gateway.run_request import RunCreate, to_request

Json = dict[str, Any]

_MODES = ["values", "messages", "updates", "custom", "tasks", "checkpoints"]
"""Stream modes of a run started here: all that the protocol's events are derived from."""

_INTERRUPT_SECONDS = 3.0
"""How long a response waits for the run that interrupted: only storing its end is left to do."""


class CommandError(DeerFlowError):
    """A command cannot be executed; `protocol_code` is one of the protocol's error codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.protocol_code = code


@dataclass(frozen=True, slots=True)
class Command:
    """One well-formed command."""

    id: int
    method: str
    params: Mapping[str, Any]


def parse_command(body: Any) -> Command:
    """Parse the command in a request body."""
    given = body if isinstance(body, Mapping) else {}
    command_id, method, params = given.get("id"), given.get("method"), given.get("params")
    if not isinstance(command_id, int) or isinstance(command_id, bool) or not isinstance(method, str):
        raise CommandError(
            "invalid_argument", "Protocol commands must include an integer id and string method."
        )
    return Command(command_id, method, params if isinstance(params, Mapping) else {})


def failure(command_id: Any, error: DeerFlowError) -> Json:
    """Return the response to a command that failed."""
    if isinstance(error, CommandError):
        code, message = error.protocol_code, str(error)
    elif isinstance(error, InvalidInputError):
        code, message = "invalid_argument", str(error)
    else:
        code, message = "unknown_error", f"{STATUS.get(error.code, 500)}: {error}"
    shown = command_id if isinstance(command_id, int | str) else None
    return {"type": "error", "id": shown, "error": code, "message": message}


class Commander:
    """Executes the commands for one thread."""

    def __init__(self, deerflow: DeerFlow, thread_id: str, user: str) -> None:
        self._deerflow = deerflow
        self._thread_id = thread_id
        self._user = user

    async def answer(self, command: Command) -> Json:
        """Execute a command; every `DeerFlowError` becomes an error response."""
        try:
            if not is_thread_id(self._thread_id):
                raise CommandError("unknown_error", "422: Invalid thread ID")
            result, applied = await self._result(command)
        except DeerFlowError as error:
            return failure(command.id, error)
        meta = {"applied_through_seq": applied}
        return {"type": "success", "id": command.id, "result": result, "meta": meta}

    async def _result(self, command: Command) -> tuple[Json, int]:
        match command.method:
            case "run.start":
                return await self._start(command.params)
            case "input.respond":
                return await self._respond(command.params)
            case "subscription.subscribe":
                parse_filter(command.params)  # validated only: over HTTP there is no connection to deliver to
                return {"subscription_id": new_id(), "replayed_events": 0}, await applied_seq(
                    self._deerflow, self._thread_id, self._user
                )
            case "subscription.unsubscribe":
                known = str(command.params.get("subscription_id"))[:80]
                raise CommandError("no_such_subscription", f"Unknown subscription: {known}")
            case "subscription.reconnect":
                raise CommandError("no_such_run", "No active run is bound to this thread.")
            case "agent.getTree":
                return {"tree": await self._tree()}, await applied_seq(
                    self._deerflow, self._thread_id, self._user
                )
            case _:
                raise CommandError("unknown_command", f"Unknown protocol command: {command.method[:80]}")

    async def _start(self, params: Mapping[str, Any]) -> tuple[Json, int]:
        if not isinstance(params.get("assistant_id"), str) or not params["assistant_id"]:
            raise CommandError("invalid_argument", "run.start requires an assistant_id.")
        given: Json = {"assistant_id": params["assistant_id"], "input": params.get("input")}
        pending = (
            await self._pending_interrupts()
            if given["input"] is not None and not _checkpoint(params)
            else set()
        )
        if pending:
            # Input to a thread with pending interrupts resumes it.
            given = {**given, "input": None, "command": {"resume": dict.fromkeys(pending, given["input"])}}
        request = await self._request(given, params)
        if request.checkpoint_id:
            await self._check(request.checkpoint_id)
        run_id, applied = await self._admit(request)
        return {"run_id": run_id}, applied

    async def _respond(self, params: Mapping[str, Any]) -> tuple[Json, int]:
        answers = _answers(params)
        if not await self._exists():
            raise CommandError("no_such_run", "No interrupted run is bound to this thread.")
        pending = await self._pending_interrupts()
        if not answers.keys() <= pending:
            # The interrupt is published before its run has ended, and may be answered at once.
            await self._wait_for_interrupt()
            pending = await self._pending_interrupts()
        for interrupt_id in answers:
            if interrupt_id not in pending:
                text = f"Unknown or already-consumed interrupt: {interrupt_id[:80]}"
                raise CommandError("no_such_interrupt", text)
        command: Json = {"resume": answers}
        command.update({key: params[key] for key in ("update", "goto") if params.get(key) is not None})
        _, applied = await self._admit(await self._resume_request(command, params))
        return {}, applied

    async def _wait_for_interrupt(self) -> None:
        """Wait briefly for the end of the running run."""
        for run in await self._deerflow.runs.of_thread(self._thread_id):
            if run.status is RunStatus.RUNNING:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_INTERRUPT_SECONDS):
                        await self._deerflow.runs.wait(run.id)

    async def _resume_request(self, command: Json, params: Mapping[str, Any]) -> RunRequest:
        """Build the resuming request; without a `config` it keeps the options of the interrupted run."""
        runs = await self._deerflow.runs.of_thread(self._thread_id, limit=1)
        # A copied thread keeps its interrupts but has no runs.
        before = runs[0].request if runs else RunRequest(self._thread_id, self._user)
        request = await self._request({"assistant_id": before.assistant_id, "command": command}, params)
        if params.get("config") is not None:
            return request
        return replace(
            request, options=before.options, context=before.context, recursion_limit=before.recursion_limit
        )

    async def _request(self, given: Json, params: Mapping[str, Any]) -> RunRequest:
        fields = {
            **given,
            "config": params.get("config"),
            "metadata": params.get("metadata"),
            "stream_mode": _MODES,
            "stream_subgraphs": True,
            "on_disconnect": "continue",
            "multitask_strategy": _strategy(params.get("multitaskStrategy")),
        }
        try:
            body = RunCreate.model_validate(fields)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            location = ".".join(map(str, wrong["loc"]))
            raise CommandError("invalid_argument", f"{location}: {wrong['msg']}") from error
        return await to_request(self._deerflow, body, thread_id=self._thread_id, user_id=self._user)

    async def _admit(self, request: RunRequest) -> tuple[str, int]:
        applied = await applied_seq(self._deerflow, self._thread_id, self._user)
        run = await self._deerflow.start_run(request)
        return run.id, applied

    async def _pending_interrupts(self) -> set[str]:
        """Return the ids of pending interrupts, without those that a run in flight resumes."""
        if not await self._exists():
            return set()
        questions = await self._deerflow.state.questions(self._thread_id)
        waiting = {each.id for pending in questions.values() for each in pending}
        if not waiting:
            return set()
        for run in await self._deerflow.runs.of_thread(self._thread_id):
            resume = (run.request.command or {}).get("resume")
            if not run.status.is_terminal and isinstance(resume, Mapping):
                waiting -= set(resume)
        return waiting

    async def _exists(self) -> bool:
        try:
            await self._deerflow.storage.threads.get(self._thread_id, self._user)
        except NotFoundError:
            return False
        return True

    async def _check(self, checkpoint_id: str) -> None:
        await self._deerflow.storage.threads.get(self._thread_id, self._user)
        if await self._deerflow.state.latest(self._thread_id, checkpoint_id=checkpoint_id) is None:
            text = f"thread {self._thread_id} has no checkpoint '{checkpoint_id[:80]}'"
            raise CommandError("no_such_checkpoint", text)

    async def _tree(self) -> Json:
        exists = await self._exists()
        runs = await self._deerflow.runs.of_thread(self._thread_id, limit=1) if exists else []
        if not runs:
            raise CommandError("no_such_run", "No active run is bound to this thread.")
        status = {"success": "completed", "pending": "running", "error": "failed", "timeout": "failed"}
        shown = status.get(runs[0].status, str(runs[0].status))
        return {"namespace": [], "status": shown, "graph_name": runs[0].request.assistant_id}


def _strategy(given: Any) -> str:
    known = given if isinstance(given, str) and given in list(MultitaskStrategy) else None
    return known or MultitaskStrategy.ENQUEUE


def _checkpoint(params: Mapping[str, Any]) -> Any:
    config = params.get("config")
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    return configurable.get("checkpoint_id") if isinstance(configurable, Mapping) else None


def _answers(params: Mapping[str, Any]) -> Json:
    """Return the responses by interrupt id."""
    many = params.get("responses")
    given = many if isinstance(many, list) else [params] if many is None else []
    answers = {}
    for answer in given:
        interrupt_id = answer.get("interrupt_id") if isinstance(answer, Mapping) else None
        if not isinstance(interrupt_id, str) or not interrupt_id:
            raise CommandError("invalid_argument", "input.respond requires an interrupt_id for each answer.")
        answers[interrupt_id] = answer.get("response")
    if not answers:
        raise CommandError("invalid_argument", "input.respond requires an interrupt_id or responses.")
    return answers
