"""Routes that start runs: on a thread, on a new thread, or in a batch."""

import asyncio
import re
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from pydantic import model_validator
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import DisconnectMode, RunRecord, new_id
from deerflow.errors import DeerFlowError, InvalidInputError
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, json_response
from deerflow.gateway.openapi import answers
from deerflow.gateway.run_request import RunCreate, checked_request
from deerflow.gateway.run_responses import event_stream, location, wait_for
from deerflow.runtime.json_views import run_out

router = APIRouter(tags=["runs"])

MOST_IN_A_BATCH = 100
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


class BatchRun(RunCreate):
    """One run of a batch; LangGraph's JavaScript client writes its fields in its own spelling."""

    @model_validator(mode="before")
    @classmethod
    def _other_spelling(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        respelled = {_CAPITAL.sub("_", str(key)).lower(): value for key, value in data.items()}
        return {**respelled, **{key: value for key, value in data.items() if key in cls.model_fields}}


@dataclass(frozen=True, slots=True)
class Caller:
    """The user that starts a run, the DeerFlow instance and the idempotency key."""

    deerflow: DeerFlow
    user: str
    key: str | None


async def _caller(
    deerflow: CurrentApp,
    user: CurrentUser,
    key: Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)] = None,
) -> Caller:
    return Caller(deerflow, user, key)


CurrentCaller = Annotated[Caller, Depends(_caller)]


@router.post("/threads/{thread_id}/runs", **answers("Run", 400, 404, 409))
async def create_run(thread_id: ThreadPath, body: RunCreate, caller: CurrentCaller) -> Response:
    """Start a run on a thread in the background and return it.

    The thread is created where it does not exist, unless `if_not_exists` is `reject` (404). A thread that has
    a run in flight answers 409, unless `multitask_strategy` chooses otherwise. The same `Idempotency-Key`
    returns the run that it has started before. The header `Content-Location` has the run's address.
    """
    return _created(await _start(caller, thread_id, body))


@router.post("/threads/{thread_id}/runs/stream", **answers("events", 400, 404, 409))
async def stream_run(thread_id: ThreadPath, body: RunCreate, caller: CurrentCaller) -> Response:
    """Start a run on a thread and stream its events until it ends.

    `stream_mode` chooses events; `metadata` is the first, `end` the last, `error` tells why the run failed. A
    stream that breaks off is continued with `GET …/runs/{run_id}/stream` and `Last-Event-ID`. When the client
    leaves, the run is cancelled unless `on_disconnect` is `continue`. A thread that has a run in flight
    answers 409, unless `multitask_strategy` chooses otherwise. The same `Idempotency-Key` returns the run
    that it has started before. The header `Content-Location` has the run's address.
    """
    return _streamed(caller, await _start(caller, thread_id, body))


@router.post("/threads/{thread_id}/runs/wait", **answers("FinalValues", 400, 404, 409))
async def wait_run(
    thread_id: ThreadPath, body: RunCreate, caller: CurrentCaller, request: Request
) -> Response:
    """Start a run on a thread, wait for its end and return the final values of the thread.

    A run that fails is answered with status 200 and `__error__`; one that asks a question with
    `__interrupt__`. A thread that has a run in flight answers 409, unless `multitask_strategy` chooses
    otherwise. The same `Idempotency-Key` returns the run that it has started before. The header
    `Content-Location` has the run's address.
    """
    return await _waited(caller, await _start(caller, thread_id, body), request)


@router.post("/runs", **answers("Run", 400, 404, 409))
async def create_stateless_run(body: RunCreate, caller: CurrentCaller) -> Response:
    """Start a run in the background on a new thread and return it.

    `config.configurable.thread_id` names an existing thread instead. `on_completion` decides whether a new
    thread is kept.
    """
    return _created(await _start_stateless(caller, body))


@router.post("/runs/stream", **answers("events", 400, 404, 409))
async def stream_stateless_run(body: RunCreate, caller: CurrentCaller) -> Response:
    """Start a run on a new thread and stream its events until it ends.

    `config.configurable.thread_id` names an existing thread instead. `on_completion` decides whether a new
    thread is kept.
    """
    return _streamed(caller, await _start_stateless(caller, body))


@router.post("/runs/wait", **answers("FinalValues", 400, 404, 409))
async def wait_stateless_run(body: RunCreate, caller: CurrentCaller, request: Request) -> Response:
    """Start a run on a new thread, wait for its end and return the final values.

    `config.configurable.thread_id` names an existing thread instead. `on_completion` decides whether a new
    thread is kept. A run that fails is answered with status 200 and `__error__`.
    """
    return await _waited(caller, await _start_stateless(caller, body), request)


@router.post("/runs/batch", **answers("list[Run | BatchError]", 400))
async def create_run_batch(bodies: list[BatchRun], caller: CurrentCaller) -> Response:
    """Start many runs in the background, each on a new thread or on the one that it names.

    At most 100 at once. The answer has the runs in the order of the request; a run that could not be started
    has an error instead, and the others go on.
    """
    if len(bodies) > MOST_IN_A_BATCH:
        raise InvalidInputError(f"a batch holds at most {MOST_IN_A_BATCH} runs, not {len(bodies)}")
    single = Caller(caller.deerflow, caller.user, None)
    started = await asyncio.gather(
        *(_start_stateless(single, body) for body in bodies), return_exceptions=True
    )
    for outcome in started:
        if isinstance(outcome, BaseException) and not isinstance(outcome, DeerFlowError):
            raise outcome
    return json_response([_outcome(outcome) for outcome in started])


async def _start_stateless(caller: Caller, body: RunCreate) -> RunRecord:
    named = body.thread_id()
    return await _start(caller, named or new_id(), body, is_stateless=named is None)


async def _start(caller: Caller, thread_id: str, body: RunCreate, *, is_stateless: bool = False) -> RunRecord:
    request = await checked_request(
        caller.deerflow,
        body,
        thread_id=thread_id,
        user_id=caller.user,
        idempotency_key=caller.key,
        is_stateless=is_stateless,
    )
    return await caller.deerflow.runs.start(request)  # `CurrentApp` has applied edits of the settings


def _created(run: RunRecord) -> Response:
    return json_response(run_out(run), headers=location(run))


def _streamed(caller: Caller, run: RunRecord) -> Response:
    return event_stream(caller.deerflow, run, cancel_on_disconnect=_cancels_on_disconnect(run))


async def _waited(caller: Caller, run: RunRecord, request: Request) -> Response:
    return await wait_for(caller.deerflow, run, request, cancel_on_disconnect=_cancels_on_disconnect(run))


def _cancels_on_disconnect(run: RunRecord) -> bool:
    return run.request.on_disconnect is DisconnectMode.CANCEL


def _outcome(outcome: RunRecord | BaseException) -> dict[str, object]:
    """Return a run of a batch, or its error: the other runs have started."""
    if isinstance(outcome, RunRecord):
        return run_out(outcome)
    code = outcome.code if isinstance(outcome, DeerFlowError) else "internal"
    return {"status": "error", "detail": str(outcome), "code": code}
