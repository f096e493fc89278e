"""The state of a thread that is kept between turns, and the reducers of its channels."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required

from langchain.agents import AgentState
from langchain_core.messages import AnyMessage
from typing_extensions import TypedDict

from deerflow.agents.langgraph_beta import messages_channel


class ThreadData(TypedDict):
    """Paths of the thread's folders, as tools and clients see them."""

    workspace_path: str
    uploads_path: str
    outputs_path: str


class SandboxState(TypedDict):
    """The sandbox that the thread uses."""

    sandbox_id: str


class UploadedFile(TypedDict):
    """An uploaded file and the message it came with."""

    filename: str
    path: str
    size: int
    message_id: str
    markdown_path: NotRequired[str]
    """Path of the Markdown version, for converted documents."""


class ViewedImage(TypedDict):
    """An image that the model asked to see."""

    base64: str
    mime_type: str


class Todo(TypedDict):
    """One item of the plan."""

    content: str
    status: str


class Spent(TypedDict):
    """Token usage of one run so far."""

    run_id: str
    input_tokens: int
    output_tokens: int


class ActiveSkill(TypedDict):
    """A skill that is active in the current turn."""

    name: str
    path: str
    version: str | None
    digest: str
    activated_by: Literal["slash", "read", "dependency"]
    allowed_tools: list[str] | None
    turn: str
    """Id of the message whose turn it is active in."""
    text_id: str
    """Id of the message that shows its instructions, or key of `skill_texts`."""


class Delegation(TypedDict):
    """A task delegated to a sub-agent and its result, one line each."""

    description: str
    result: str


class GoalEvaluation(TypedDict):
    """A model's evaluation of a goal at the end of a turn."""

    satisfied: bool
    blocker: str
    reason: str
    evidence_summary: NotRequired[str]
    run_id: NotRequired[str]
    evaluated_at: NotRequired[str]
    progress_key: NotRequired[str]
    """Equal keys of two evaluations mean no progress between them."""
    stand_down_reason: NotRequired[str]
    """Why the agent did not continue on its own."""


class GoalState(TypedDict):
    """A goal that the user set for a thread."""

    objective: str
    status: str
    created_at: str
    updated_at: str
    continuation_count: int
    """How often the agent continued on its own."""
    max_continuations: int
    no_progress_count: int
    max_no_progress_continuations: int
    last_evaluation: NotRequired[GoalEvaluation]


def merge_artifacts(known: Sequence[str] | None, new: Sequence[str] | None) -> list[str]:
    """Return `known` followed by the new paths, without duplicates."""
    return list(dict.fromkeys([*(known or ()), *(new or ())]))


def merge_uploads(
    known: Sequence[UploadedFile] | None, new: Sequence[UploadedFile] | None
) -> list[UploadedFile]:
    """Return all uploads, one entry per message and path; the latest wins."""
    return list(
        {(file["message_id"], file["path"]): file for file in [*(known or ()), *(new or ())]}.values()
    )


def merge_images(
    known: Mapping[str, ViewedImage] | None, new: Mapping[str, ViewedImage] | None
) -> dict[str, ViewedImage]:
    """Merge both; an empty mapping clears, since images are part of one request only."""
    if new is None:
        return dict(known or {})
    return {**(known or {}), **new} if new else {}


def merge_notes(known: Mapping[str, str] | None, new: Mapping[str, str] | None) -> dict[str, str]:
    """Merge both, in insertion order."""
    return {**(known or {}), **(new or {})}


MAX_SKILL_PATHS = 8


def latest_paths(known: Sequence[str] | None, new: Sequence[str] | None) -> list[str]:
    """Return the last paths of `new` without repetitions; `known` if there is no new list."""
    if new is None:
        return list(known or ())
    return list(dict.fromkeys(reversed(new)))[:MAX_SKILL_PATHS][::-1]


def keep_latest(known: Any, new: Any) -> Any:
    """Return `new` unless it is None."""
    return known if new is None else new


def replace_known(known: Any, new: Any) -> Any:
    """Return `new`, even if it is None."""
    return new


class ThreadState(AgentState[Any]):
    """The state of one thread."""

    messages: Required[Annotated[list[AnyMessage], messages_channel()]]
    sandbox: NotRequired[Annotated[SandboxState | None, keep_latest]]
    thread_data: NotRequired[Annotated[ThreadData | None, keep_latest]]
    title: NotRequired[Annotated[str | None, keep_latest]]
    artifacts: NotRequired[Annotated[list[str], merge_artifacts]]
    todos: NotRequired[Annotated[list[Todo] | None, keep_latest]]
    goal: NotRequired[Annotated[GoalState | None, replace_known]]
    uploaded_files: NotRequired[Annotated[list[UploadedFile], merge_uploads]]
    viewed_images: NotRequired[Annotated[dict[str, ViewedImage], merge_images]]
    reminders: NotRequired[Annotated[dict[str, str], merge_notes]]
    """The harness's notes, by the id of the message they precede."""
    tokens_spent: NotRequired[Annotated[Spent | None, keep_latest]]
    summary_text: NotRequired[Annotated[str | None, keep_latest]]
    """The summary of removed messages."""
    skill_context: NotRequired[Annotated[list[str] | None, latest_paths]]
    """Paths of skills that the user activated, or that were read in removed messages."""
    active_skills: NotRequired[Annotated[list[ActiveSkill] | None, keep_latest]]
    """The skills of the current turn."""
    skill_texts: NotRequired[Annotated[dict[str, str] | None, merge_notes]]
    """Instructions of skills that no tool result shows, by the id of the message they belong to."""
    delegations: NotRequired[Annotated[list[Delegation] | None, keep_latest]]
    """Tasks that were delegated in removed messages."""
    promoted: NotRequired[Annotated[dict[str, str] | None, merge_notes]]
    """Deferred tools that were loaded, each with the fingerprint of its description at that time."""
    dropped_results: NotRequired[Annotated[list[str] | None, keep_latest]]
    """Ids of the tool results that the model sees only as a line."""
