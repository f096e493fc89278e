"""Routes for crons: create, search, change, delete; their runs are ordinary runs."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import LEAD_AGENT, new_id
from deerflow.errors import ConflictError
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, json_response, owned_thread
from deerflow.gateway.openapi import CHANGED_UNSHOWN, answers
from deerflow.gateway.pagination import Prefer, changed, page_of
from deerflow.gateway.run_request import RunCreate, to_request
from deerflow.runtime.json_views import selected, stamp
from deerflow.scheduler import CronJob, CronStore, Scheduler, check_schedule

router = APIRouter(tags=["crons"])

CronField = Literal[
    "cron_id",
    "assistant_id",
    "thread_id",
    "on_run_completed",
    "end_time",
    "schedule",
    "timezone",
    "created_at",
    "updated_at",
    "payload",
    "user_id",
    "next_run_date",
    "metadata",
    "now",
    "enabled",
]
"""The cron fields that LangGraph's clients select; all but `now` exist."""
OFF = "crons do not run here; set scheduler.enabled to true in config.yaml and start the server again"
_OWN_FIELDS = frozenset({"schedule", "timezone", "end_time", "enabled", "on_run_completed"})


def _in_utc(value: Any) -> Any:
    """Interpret a time without a zone as UTC, as LangGraph's clients mean it."""
    if isinstance(value, str):
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            return value
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_in_utc)]


class CronCreate(RunCreate):
    """A new cron: all fields of a run may stand beside its schedule."""

    schedule: str = Field(max_length=1000)
    timezone: str | None = Field(None, max_length=1000)
    end_time: Moment | None = None
    enabled: bool = True
    on_run_completed: Literal["delete", "keep"] | None = None


class CronPatch(RunCreate):
    """What is to change about a cron; what is absent stays."""

    schedule: str | None = Field(None, max_length=1000)
    timezone: str | None = Field(None, max_length=1000)
    end_time: Moment | None = None
    enabled: bool | None = None
    on_run_completed: Literal["delete", "keep"] | None = None


class CronSearch(BaseModel):
    """Which crons to list."""

    assistant_id: str | None = None
    thread_id: str | None = None
    enabled: bool | None = None
    metadata: dict[str, Any] | None = None
    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0)
    sort_by: Literal[
        "cron_id", "assistant_id", "thread_id", "created_at", "updated_at", "next_run_date", "end_time"
    ] = "created_at"
    sort_order: Literal["asc", "desc"] = "desc"
    select: list[CronField] | None = None


async def _crons(deerflow: CurrentApp) -> CronStore:
    return CronStore(deerflow.storage.store)


async def _scheduler(request: Request) -> Scheduler:
    scheduler: Scheduler = request.app.state.scheduler
    return scheduler


Crons = Annotated[CronStore, Depends(_crons)]
CurrentScheduler = Annotated[Scheduler, Depends(_scheduler)]


@router.post("/threads/{thread_id}/runs/crons", **answers("Cron", 400, 404, 409))
async def create_thread_cron(
    thread_id: ThreadPath,
    body: CronCreate,
    user: CurrentUser,
    deerflow: CurrentApp,
    crons: Crons,
    scheduler: CurrentScheduler,
) -> Response:
    """Create a cron, which starts runs in this thread at the times of a schedule.

    A time at which the thread is busy is skipped. `schedule` has cron syntax with five fields; `timezone` is
    the zone of its times, UTC without one. Answers 409 while `scheduler.enabled` is false in the settings.
    """
    await owned_thread(deerflow, thread_id, user)
    cron = await _new_cron(deerflow, body, user, thread_id)
    await crons.create(cron)
    scheduler.wake()
    return json_response(_cron_out(cron))


@router.post("/runs/crons", **answers("Cron", 400, 404, 409))
async def create_cron(
    body: CronCreate, user: CurrentUser, deerflow: CurrentApp, crons: Crons, scheduler: CurrentScheduler
) -> Response:
    """Create a cron, which starts runs at the times of a schedule, each in a new thread.

    `schedule` has cron syntax with five fields; `timezone` is the zone of its times, UTC without one. Answers
    409 while `scheduler.enabled` is false in the settings.
    """
    cron = await _new_cron(deerflow, body, user, None)
    await crons.create(cron)
    scheduler.wake()
    return json_response(_cron_out(cron))


@router.post("/runs/crons/search", **answers("list[SelectedCron]"))
async def search_crons(user: CurrentUser, crons: Crons, body: CronSearch | None = None) -> Response:
    """List crons, newest first.

    Scheduled tasks have routes of their own and are not listed. The header `X-Pagination-Total` has the
    number of all that match.
    """
    search = body or CronSearch()
    rows = sorted(
        await _found(crons, search, user),
        key=lambda row: (row[search.sort_by] is None, row[search.sort_by] or "", row["cron_id"]),
        reverse=search.sort_order == "desc",
    )
    page, headers = page_of(rows[search.offset :], limit=search.limit, offset=search.offset, total=len(rows))
    return json_response([selected(row, search.select) for row in page], headers=headers)


@router.post("/runs/crons/count", **answers("int"))
async def count_crons(user: CurrentUser, crons: Crons, body: CronSearch | None = None) -> Response:
    """Count the crons that match a filter, as a plain number."""
    return json_response(len(await _found(crons, body or CronSearch(), user)))


@router.get("/runs/crons/{cron_id}", **answers("Cron", 404))
async def get_cron(cron_id: str, user: CurrentUser, crons: Crons) -> Response:
    """Return one cron."""
    return json_response(_cron_out(await crons.get(cron_id, user)))


@router.patch("/runs/crons/{cron_id}", **answers("Cron", 400, 404, empty=CHANGED_UNSHOWN))
async def update_cron(
    cron_id: str,
    body: CronPatch,
    user: CurrentUser,
    deerflow: CurrentApp,
    crons: Crons,
    scheduler: CurrentScheduler,
    prefer: Prefer = None,
) -> Response:
    """Change a cron; fields that are absent stay as they are.

    `metadata` is merged. Times that passed before the change are not made up for.
    """
    cron = await _changed(deerflow, await crons.get(cron_id, user), body)
    await crons.put(cron)
    scheduler.wake()
    return changed(_cron_out(cron), prefer)


@router.delete("/runs/crons/{cron_id}", **answers(None, 404, status=204))
async def delete_cron(cron_id: str, user: CurrentUser, crons: Crons) -> Response:
    """Delete a cron; runs that it started go on."""
    await crons.get(cron_id, user)
    await crons.delete(cron_id)
    return Response(status_code=204)


async def _new_cron(deerflow: DeerFlow, body: CronCreate, user: str, thread_id: str | None) -> CronJob:
    if not deerflow.settings.scheduler.enabled:
        raise ConflictError(OFF)
    now = datetime.now(UTC)
    cron = CronJob(
        id=new_id(),
        user_id=user,
        schedule=body.schedule,
        payload=_payload(body),
        created_at=now,
        updated_at=now,
        since=now,
        assistant_id=body.assistant_id or LEAD_AGENT,
        thread_id=thread_id,
        timezone=body.timezone,
        end_time=body.end_time,
        enabled=body.enabled,
        on_run_completed=body.on_run_completed if thread_id else body.on_run_completed or "delete",
        metadata=body.metadata or {},
    )
    await _check(deerflow, cron)
    return cron


async def _changed(deerflow: DeerFlow, cron: CronJob, body: CronPatch) -> CronJob:
    now = datetime.now(UTC)
    sent = {name: getattr(body, name) for name in body.model_fields_set}
    own = {
        name: value
        for name, value in sent.items()
        if name in _OWN_FIELDS and (value is not None or name == "end_time")
    }
    starts_anew = bool({"schedule", "timezone"} & own.keys()) or (own.get("enabled") and not cron.enabled)
    payload = {**cron.payload, **_payload(body)}
    payload["metadata"] = {**cron.metadata, **(body.metadata or {})}
    newer = replace(
        cron,
        **own,
        payload=payload,
        assistant_id=payload.get("assistant_id") or LEAD_AGENT,
        metadata=payload["metadata"],
        updated_at=now,
        since=now if starts_anew else cron.since,
    )
    await _check(deerflow, newer)
    return newer


async def _check(deerflow: DeerFlow, cron: CronJob) -> None:
    """Reject a cron whose runs could only fail."""
    check_schedule(cron.schedule, cron.timezone, now=datetime.now(UTC))
    body = RunCreate(**cron.payload)
    request = await to_request(deerflow, body, thread_id=cron.thread_id or cron.id, user_id=cron.user_id)
    if request.options.model_name is not None:
        deerflow.models.get(request.options.model_name)


def _payload(body: RunCreate) -> dict[str, Any]:
    return body.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude=set(_OWN_FIELDS))


async def _found(crons: CronStore, search: CronSearch, user: str) -> list[dict[str, Any]]:
    wanted = (search.metadata or {}).items()
    return [
        _cron_out(cron)
        for cron in await crons.of_user(user)
        if cron.title is None  # crons with a title are scheduled tasks, with their own routes
        and search.assistant_id in (None, cron.assistant_id)
        and search.thread_id in (None, cron.thread_id)
        and search.enabled in (None, cron.enabled)
        and all(cron.metadata.get(key) == value for key, value in wanted)
    ]


def _cron_out(cron: CronJob) -> dict[str, Any]:
    next_run = cron.next_after(datetime.now(UTC))
    return {
        "cron_id": cron.id,
        "assistant_id": cron.assistant_id,
        "thread_id": cron.thread_id,
        "on_run_completed": cron.on_run_completed,
        "end_time": stamp(cron.end_time) if cron.end_time else None,
        "schedule": cron.schedule,
        "timezone": cron.timezone,
        "created_at": stamp(cron.created_at),
        "updated_at": stamp(cron.updated_at),
        "payload": {**cron.payload, "schedule": cron.schedule},
        "user_id": cron.user_id,
        "next_run_date": stamp(next_run) if next_run else None,
        "metadata": dict(cron.metadata),
        "enabled": cron.enabled,
    }
