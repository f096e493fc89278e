"""What a thread remembers between turns, and how to read it without building an agent."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, Required

from langchain.agents import AgentState
from langchain_core.messages import AnyMessage
from typing_extensions import TypedDict

from deerflow.agents.langgraph_beta import messages_channel


class ThreadData(TypedDict):
    """Where the thread's files are, as tools and clients see them."""

    workspace_path: str
    uploads_path: str
    outputs_path: str


class SandboxState(TypedDict):
    """Which sandbox the thread works in."""

    sandbox_id: str


class UploadedFile(TypedDict):
    """A file that the user added, and the message it came with."""

    filename: str
    path: str
    size: int
    message_id: str
    markdown_path: NotRequired[str]
    """Where its text is as Markdown, for documents that were converted."""


class ViewedImage(TypedDict):
    """An image that the model asked to see."""

    base64: str
    mime_type: str


class Todo(TypedDict):
    """One item of the plan."""

    content: str
    status: str


class Spent(TypedDict):
    """What one run has spent so far."""

    run_id: str
    input_tokens: int
    output_tokens: int


class Delegation(TypedDict):
    """A task that was given to a sub-agent, and what came of it, in a line each."""

    description: str
    result: str


class GoalEvaluation(TypedDict):
    """What a model found about a goal at the end of a turn."""

    satisfied: bool
    blocker: str
    reason: str
    evidence_summary: NotRequired[str]
    run_id: NotRequired[str]
    evaluated_at: NotRequired[str]
    progress_key: NotRequired[str]
    """Equal keys of two evaluations: nothing was done between them."""
    stand_down_reason: NotRequired[str]
    """Why the agent did not go on by itself."""


class GoalState(TypedDict):
    """What the user wants a thread to reach."""

    objective: str
    status: str
    created_at: str
    updated_at: str
    continuation_count: int
    """How often the agent went on by itself."""
    max_continuations: int
    no_progress_count: int
    max_no_progress_continuations: int
    last_evaluation: NotRequired[GoalEvaluation]


def merge_artifacts(known: Sequence[str] | None, new: Sequence[str] | None) -> list[str]:
    """Return `known` and then what is new in `new`, each path once."""
    return list(dict.fromkeys([*(known or ()), *(new or ())]))


def merge_uploads(
    known: Sequence[UploadedFile] | None, new: Sequence[UploadedFile] | None
) -> list[UploadedFile]:
    """Return all uploads, each file once per message, the latest word on it."""
    return list(
        {(file["message_id"], file["path"]): file for file in [*(known or ()), *(new or ())]}.values()
    )


def merge_images(
    known: Mapping[str, ViewedImage] | None, new: Mapping[str, ViewedImage] | None
) -> dict[str, ViewedImage]:
    """Return both together; an empty mapping clears, since images are shown for one call only."""
    if new is None:
        return dict(known or {})
    return {**(known or {}), **new} if new else {}


def merge_notes(known: Mapping[str, str] | None, new: Mapping[str, str] | None) -> dict[str, str]:
    """Return both together, in the order in which they were noted."""
    return {**(known or {}), **(new or {})}


def keep_latest(known: Any, new: Any) -> Any:
    """Return `new` unless it says nothing."""
    return known if new is None else new


def replace_known(known: Any, new: Any) -> Any:
    """Return `new`, also when it says that there is nothing any more."""
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
    """What the harness says in front of a message, by the message's id."""
    tokens_spent: NotRequired[Annotated[Spent | None, keep_latest]]
    summary_text: NotRequired[Annotated[str | None, keep_latest]]
    """What was said in messages that are no longer there."""
    skill_context: NotRequired[Annotated[list[str] | None, keep_latest]]
    """Skills that were read in such messages."""
    delegations: NotRequired[Annotated[list[Delegation] | None, keep_latest]]
    """Tasks that were given in such messages."""
    promoted: NotRequired[Annotated[dict[str, str] | None, merge_notes]]
    """Deferred tools that were searched for, each with what stood for its description then."""
    dropped_results: NotRequired[Annotated[list[str] | None, keep_latest]]
    """Ids of the tool results of which the model sees only a line any more."""
