"""Routes for crons: create, search, change, delete; their runs are ordinary runs."""

from dataclasses import dataclass, replace
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
    """A new cron: its schedule, and the fields of a run."""

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


@dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of the user who asks, and the scheduler that starts their runs."""

    deerflow: DeerFlow
    user: str
    crons: CronStore
    scheduler: Scheduler

    def require_enabled(self) -> None:
        """Raise `ConflictError` if the settings turn the scheduler off."""
        if not self.deerflow.settings.scheduler.enabled:
            raise ConflictError(OFF)

    async def create(self, cron: CronJob) -> None:
        """Store a new schedule."""
        await self.crons.create(cron)
        self.scheduler.wake()

    async def put(self, cron: CronJob) -> None:
        """Store a changed schedule."""
        await self.crons.put(cron)
        self.scheduler.wake()


async def _schedules(request: Request, user: CurrentUser, deerflow: CurrentApp) -> Schedules:
    return Schedules(deerflow, user, CronStore(deerflow.storage.store), request.app.state.scheduler)


CurrentSchedules = Annotated[Schedules, Depends(_schedules)]


@router.post("/threads/{thread_id}/runs/crons", **answers("Cron", 400, 404, 409))
async def create_thread_cron(
    thread_id: ThreadPath, body: CronCreate, schedules: CurrentSchedules
) -> Response:
    """Create a cron, which starts runs in this thread at the times of a schedule.

    A time at which the thread is busy is skipped. `schedule` has cron syntax with five fields; `timezone` is
    the zone of its times, UTC without one. Answers 409 while `scheduler.enabled` is false in the settings.
    """
    await owned_thread(schedules.deerflow, thread_id, schedules.user)
    return json_response(_cron_out(await _create(schedules, body, thread_id)))


@router.post("/runs/crons", **answers("Cron", 400, 404, 409))
async def create_cron(body: CronCreate, schedules: CurrentSchedules) -> Response:
    """Create a cron, which starts runs at the times of a schedule, each in a new thread.

    `schedule` has cron syntax with five fields; `timezone` is the zone of its times, UTC without one. Answers
    409 while `scheduler.enabled` is false in the settings.
    """
    return json_response(_cron_out(await _create(schedules, body, None)))


@router.post("/runs/crons/search", **answers("list[SelectedCron]"))
async def search_crons(schedules: CurrentSchedules, body: CronSearch | None = None) -> Response:
    """List crons, newest first.

    Scheduled tasks have routes of their own and are not listed. The header `X-Pagination-Total` has the
    number of all that match.
    """
    search = body or CronSearch()
    rows = sorted(
        await _found(schedules, search),
        key=lambda row: (row[search.sort_by] is None, row[search.sort_by] or "", row["cron_id"]),
        reverse=search.sort_order == "desc",
    )
    page, headers = page_of(rows[search.offset :], limit=search.limit, offset=search.offset, total=len(rows))
    return json_response([selected(row, search.select) for row in page], headers=headers)


@router.post("/runs/crons/count", **answers("int"))
async def count_crons(schedules: CurrentSchedules, body: CronSearch | None = None) -> Response:
    """Count the crons that match a filter, as a plain number."""
    return json_response(len(await _found(schedules, body or CronSearch())))


@router.get("/runs/crons/{cron_id}", **answers("Cron", 404))
async def get_cron(cron_id: str, schedules: CurrentSchedules) -> Response:
    """Return one cron."""
    return json_response(_cron_out(await schedules.crons.get(cron_id, schedules.user)))


@router.patch("/runs/crons/{cron_id}", **answers("Cron", 400, 404, empty=CHANGED_UNSHOWN))
async def update_cron(
    cron_id: str, body: CronPatch, schedules: CurrentSchedules, prefer: Prefer = None
) -> Response:
    """Change a cron; fields that are absent stay as they are.

    `metadata` is merged. Times that passed before the change are not made up for.
    """
    known = await schedules.crons.get(cron_id, schedules.user)
    cron = await _changed(schedules.deerflow, known, body)
    await schedules.put(cron)
    return changed(_cron_out(cron), prefer)


@router.delete("/runs/crons/{cron_id}", **answers(None, 404, status=204))
async def delete_cron(cron_id: str, schedules: CurrentSchedules) -> Response:
    """Delete a cron; runs that it started go on."""
    await schedules.crons.get(cron_id, schedules.user)
    await schedules.crons.delete(cron_id)
    return Response(status_code=204)


async def _create(schedules: Schedules, body: CronCreate, thread_id: str | None) -> CronJob:
    schedules.require_enabled()
    now = datetime.now(UTC)
    cron = CronJob(
        id=new_id(),
        user_id=schedules.user,
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
    await _check(schedules.deerflow, cron)
    await schedules.create(cron)
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


async def _found(schedules: Schedules, search: CronSearch) -> list[dict[str, Any]]:
    wanted = (search.metadata or {}).items()
    return [
        _cron_out(cron)
        for cron in await schedules.crons.of_user(schedules.user)
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
