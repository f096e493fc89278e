"""Request bodies for threads and their states."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

ThreadId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


ThreadField = Literal[
    "thread_id",
    "status",
    "created_at",
    "updated_at",
    "state_updated_at",
    "metadata",
    "values",
    "interrupts",
    "waits_for_answer",
    "config",
    "context",
    "error",
    "extracted",
]
"""The thread fields that LangGraph's clients select; we have most of them."""
OneValue = Annotated[str, StringConstraints(pattern=r"^values\.[^.]+$", max_length=256)]
"""One value of a thread's state; `values.title` is available without reading the state."""


class StepUpdate(BaseModel):
    """What one node wrote in a step of a thread from elsewhere."""

    model_config = ConfigDict(extra="ignore")

    values: dict[str, Any] | list[dict[str, Any]] | None = None
    as_node: str | None = None


class Superstep(BaseModel):
    """One step of a thread from elsewhere."""

    model_config = ConfigDict(extra="ignore")

    updates: list[StepUpdate] = Field(max_length=100)


class ThreadCreate(BaseModel):
    """A new thread, or an old one when the id is known already."""

    model_config = ConfigDict(extra="ignore")

    thread_id: ThreadId | None = None
    assistant_id: str | None = None
    metadata: dict[str, Any] | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None
    ttl: dict[str, Any] | float | None = None
    """Accepted: threads stay until they are deleted."""
    supersteps: list[Superstep] | None = Field(None, max_length=1000)
    """Steps of a thread from elsewhere, to be taken in one after another."""


class ThreadSearch(BaseModel):
    """Which threads to list."""

    model_config = ConfigDict(extra="ignore")

    metadata: dict[str, Any] | None = None
    values: dict[str, Any] | None = None
    ids: list[str] | None = None
    limit: int = Field(100, ge=1, le=1000)
    offset: int = Field(0, ge=0)
    extract: dict[str, str] | None = Field(None, max_length=10)
    status: Literal["idle", "busy", "interrupted", "error"] | None = None
    sort_by: Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[ThreadField | OneValue] | None = None


class ThreadPatch(BaseModel):
    """A change to a thread's metadata."""

    model_config = ConfigDict(extra="ignore")

    metadata: dict[str, Any] = {}


class ThreadPrune(BaseModel):
    """Threads to delete, or to strip of their past."""

    model_config = ConfigDict(extra="ignore")

    thread_ids: list[str] = Field(max_length=1000)
    strategy: Literal["delete", "keep_latest"] = "delete"


class StateUpdate(BaseModel):
    """Values to set in a thread's state."""

    model_config = ConfigDict(extra="ignore")

    values: dict[str, Any] | list[dict[str, Any]] | None = None
    checkpoint_id: str | None = None
    checkpoint: dict[str, Any] | None = None
    as_node: str | None = None


class HistoryQuery(BaseModel):
    """Which states of a thread's past to list."""

    model_config = ConfigDict(extra="ignore")

    limit: int = Field(10, ge=1, le=1000)
    before: str | dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    checkpoint: dict[str, Any] | None = None
    select: list[str] | None = None


class StateQuery(BaseModel):
    """Which state of a thread, and what of it."""

    model_config = ConfigDict(extra="ignore")

    checkpoint: dict[str, Any] | str | None = None
    subgraphs: bool = False
    """Accepted: sub-agents have threads of their own."""
    select: list[str] | None = None
