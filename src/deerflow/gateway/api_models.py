"""Response models of the HTTP API: they describe responses in `/openapi.json` but serialize none of them.

Routers write their responses as plain JSON. Tests validate real responses against these models.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_TIME = "2026-01-31T09:00:00+00:00"
_THREAD = "3f0c5d1e-8c1b-4a54-9a39-2f6f0b1f7f10"
_RUN = "019c1a60-7a5e-7c1d-b0f4-6a2f4f4f2a11"
_CHECKPOINT = "1f0fe8a2-5f0e-6b1c-8001-3b5d9c7e2a44"
_REPORT = "/mnt/user-data/outputs/report.md"


def _field(description: str, *examples: Any, **more: Any) -> Any:
    return Field(description=description, examples=list(examples) or None, **more)


def _time(description: str) -> Any:
    return Field(description=f"{description} ISO 8601, UTC.", examples=[_TIME])


def _all_optional(schema: dict[str, Any]) -> None:
    schema.pop("required", None)


class Answer(BaseModel):
    """Base class of all answers. Schemas are built when the document is, not when the server starts."""

    model_config = ConfigDict(defer_build=True)


class Open(Answer):
    """Base class of answers that may hold more fields than are named."""

    model_config = ConfigDict(extra="allow")


# Errors


class Error(Answer):
    """Why a request was refused."""

    detail: str = _field("What is wrong and what to do, for people.", "upload 'a.txt' not found")
    code: str | None = Field(
        None,
        description="What is wrong, for programs; absent where the status says it all.",
        examples=["not_found"],
    )


class Problem(Open):
    """One value of a request that cannot be."""

    type: str = _field("The rule that the value breaks.", "greater_than_equal")
    loc: list[str | int] = _field(
        "Where the value is: `body`, `query` or `path`, then its keys.", ["body", "limit"]
    )
    msg: str = _field("The rule in words.", "Input should be greater than or equal to 1")
    input: Any = Field(None, description="The value as it was sent.", examples=[0])


class InvalidRequest(Answer):
    """Why a request is malformed: one readable text, and each place by itself."""

    detail: list[Problem] | str = Field(
        description="Each wrong value; a text where a rule across several values is broken."
    )
    message: str | None = Field(
        None,
        description="All of `detail` as one text.",
        examples=["body limit is 0: Input should be greater than or equal to 1"],
    )
    code: str | None = Field(None, description="What is wrong, for programs.", examples=["invalid_input"])


class AccountErrorDetail(Answer):
    """Why an account operation was refused."""

    code: str = _field("What is wrong, for programs.", "provider_not_found")
    message: str = _field(
        "What is wrong, for people.",
        "Accounts are off on this server: everybody who reaches it is its one user, without login.",
    )


class AccountError(Answer):
    """Why an account operation was refused, as DeerFlow's login page reads it."""

    detail: AccountErrorDetail = _field("The reason.")


# Messages, states, threads


class Message(Open):
    """One message of a conversation, as LangChain serializes it."""

    type: str = _field("Who wrote it: `human`, `ai`, `tool` or `system`.", "ai")
    id: str | None = Field(None, description="Id of the message.", examples=["lc_run--5e0b"])
    content: str | list[Any] = _field("Text, or a list of content blocks.", "The report is written.")
    name: str | None = Field(
        None, description="Name of the author, or of the tool whose result it is.", examples=[None]
    )
    additional_kwargs: dict[str, Any] = Field({}, description="Extra fields of the provider and of DeerFlow.")
    response_metadata: dict[str, Any] = Field({}, description="What the provider reported.")


class Interrupt(Open):
    """A question at which a run stopped."""

    id: str = _field("Id of the question; an answer names it.", "c5a1d7f0b6a94f43")
    value: Any = _field("What is asked.", {"question": "Delete the file?"})


class Values(Open):
    """The values of a thread's state; a value that was never set is absent."""

    messages: list[Message] | None = Field(None, description="The conversation, oldest message first.")
    title: str | None = Field(None, description="Title of the thread.", examples=["Queues compared"])
    artifacts: list[str] | None = Field(
        None, description="Paths of the files that the agent presented.", examples=[[_REPORT]]
    )
    todos: list[dict[str, Any]] | None = Field(
        None,
        description="The agent's plan.",
        examples=[[{"content": "Read the files", "status": "completed"}]],
    )


class FinalValues(Values):
    """The state at a run's end; after a failure, the failure instead."""

    interrupts: list[Interrupt] | None = Field(
        None, alias="__interrupt__", description="Questions at which the run stopped.", examples=[None]
    )
    status: str | None = Field(
        None, description="`error` or `timeout`, when the run failed.", examples=[None]
    )
    error: str | None = Field(None, description="Why the run failed.", examples=[None])
    failure: dict[str, Any] | None = Field(
        None, alias="__error__", description="The failure as LangGraph's clients read it.", examples=[None]
    )


class Thread(Answer):
    """A conversation with its state and files."""

    thread_id: str = _field("Id of the thread.", _THREAD)
    status: Literal["idle", "busy", "interrupted", "error"] = _field(
        "`busy` while a run is in flight; `interrupted` and `error` say how the last run ended.", "idle"
    )
    created_at: str = _time("When the thread was created.")
    updated_at: str = _time("When the thread was last used.")
    state_updated_at: str = _time("When the state last changed.")
    metadata: dict[str, Any] = _field(
        "Metadata of the client and of its runs.", {"assistant_id": "lead_agent", "graph_id": "lead_agent"}
    )
    values: Values = _field("The state; only the title where the route does not read states.")
    interrupts: dict[str, Any] = _field("Questions that wait for an answer, by the task that asks.", {})
    waits_for_answer: bool = _field("Whether the agent has asked something that nobody has answered.", False)
    error: Any = _field("Why the last run failed.", None)


class SelectedThread(Thread):
    """A thread in a list; with `select` it has the selected fields only."""

    model_config = ConfigDict(json_schema_extra=_all_optional)

    extracted: dict[str, Any] | None = Field(
        None,
        description="The values of `extract`, by the names given there.",
        examples=[{"first": "Compare the queues"}],
    )


class Checkpoint(Answer):
    """The position of a state in a thread's history."""

    id: str | None = _field("Same as `checkpoint_id`.", _CHECKPOINT)
    ts: str | None = _field("When the state was stored. ISO 8601, UTC.", _TIME)
    thread_id: str | None = _field("Id of the thread.", _THREAD)
    checkpoint_ns: str = _field("Namespace of the graph; empty for the thread's own.", "")
    checkpoint_id: str | None = _field("Id of the state; null before the first run.", _CHECKPOINT)
    checkpoint_map: dict[str, Any] | None = _field("Always null; LangGraph's clients expect the field.", None)


class StateTask(Answer):
    """A step of the graph that is to come, or that has stopped."""

    id: str = _field("Id of the step.", "5b0d3f7e")
    name: str = _field("Name of the node.", "tools")
    path: list[Any] = _field("Position of the step in the graph.", ["__pregel_push", 0, False])
    error: str | None = _field("Why the step failed.", None)
    interrupts: list[Interrupt] = _field("Questions of the step.")
    checkpoint: dict[str, Any] | None = _field("Always null.", None)
    state: dict[str, Any] | None = _field("Always null.", None)
    result: dict[str, Any] | None = _field("Always null.", None)


class ThreadState(Answer):
    """One state of a thread, after one step of a run."""

    values: Values = _field("The values of the state.")
    next: list[str] = _field("Nodes that run next; empty at the end of a run.", [])
    metadata: dict[str, Any] = _field("What the run and its client noted.", {"step": 4, "run_id": _RUN})
    checkpoint: Checkpoint = _field("Position of this state.")
    checkpoint_id: str | None = _field("Id of this state.", _CHECKPOINT)
    parent_checkpoint: Checkpoint | None = _field("Position of the state before it.", None)
    parent_checkpoint_id: str | None = _field("Id of the state before it.", None)
    created_at: str | None = _field("When the state was stored. ISO 8601, UTC.", _TIME)
    tasks: list[StateTask] = _field("Steps that are to come or that have stopped.", [])
    interrupts: list[Interrupt] = _field("Questions that wait for an answer.", [])


class SelectedState(ThreadState):
    """A state; with `select` it has the selected fields only."""

    model_config = ConfigDict(json_schema_extra=_all_optional)


class ChangedState(ThreadState):
    """The state that a change has led to."""

    configurable: dict[str, Any] | None = Field(
        None,
        description="Position of the state as LangGraph's clients read it.",
        examples=[{"thread_id": _THREAD, "checkpoint_ns": "", "checkpoint_id": _CHECKPOINT}],
    )


class StoredAmount(Answer):
    """How much is stored."""

    count: int = _field("Number of rows.", 12)
    bytes: int = _field("Size in bytes.", 20480)


class ChannelAmount(Answer):
    """How much one value of the state takes."""

    versions: int = _field("Number of stored versions.", 5)
    bytes: int = _field("Size in bytes.", 16384)


class StoredValues(StoredAmount):
    """How much the values of the states take."""

    by_channel: dict[str, ChannelAmount] = _field(
        "The same by value.", {"messages": {"versions": 5, "bytes": 16384}}
    )


class ThreadStorage(Answer):
    """What a thread's states take in the database."""

    thread_id: str = _field("Id of the thread.", _THREAD)
    total_bytes: int = _field("Size of everything, in bytes.", 40960)
    checkpoints: StoredAmount = _field("States without their values.")
    channel_values: StoredValues = _field("Values of the states.")
    pending_writes: StoredAmount = _field("Results of steps that are not yet part of a state.")


class Compacted(Answer):
    """What compacting a thread did."""

    thread_id: str = _field("Id of the thread.", _THREAD)
    compacted: bool = _field("Whether messages were replaced by a summary.", True)
    reason: str | None = _field("Why nothing was replaced.", None)
    removed_message_count: int = _field("Number of messages that the summary replaces.", 40)
    preserved_message_count: int = _field("Number of messages that stay as they are.", 8)
    summary_updated: bool = _field("Whether the summary changed.", True)
    checkpoint_id: str | None = _field("Id of the thread's state now.", _CHECKPOINT)
    total_tokens: int = _field("Estimated tokens of the messages that are left.", 2100)


class Pruned(Answer):
    """How much was pruned."""

    pruned_count: int = _field("Number of threads that lost something.", 2)


class Done(Answer):
    """Confirms that something was done."""

    success: bool = _field("Always true.", True)
    message: str | None = Field(None, description="What was done.", examples=["thread 3f0c5d1e is deleted"])


# Runs


class Costs(Answer):
    """What model calls cost, by the prices in the settings."""

    cost: float | None = _field("Cost, where it is in one currency.", 0.0123)
    currency: str | None = _field("Currency of `cost`.", "USD")
    costs: dict[str, float] = _field("Cost by currency.", {"USD": 0.0123})


class Run(Costs):
    """One execution of the agent on a thread."""

    run_id: str = _field("Id of the run.", _RUN)
    thread_id: str = _field("Id of the run's thread.", _THREAD)
    assistant_id: str = _field("The assistant that runs.", "lead_agent")
    status: Literal["pending", "running", "success", "error", "timeout", "interrupted"] = _field(
        "`pending` while the run waits for its turn; the last four are final.", "success"
    )
    metadata: dict[str, Any] = _field("Metadata of the request.", {})
    request: dict[str, Any] = _field(
        "Input, command and stream modes of the request.",
        {
            "input": {"messages": [{"type": "human", "content": "Compare the queues"}]},
            "command": None,
            "stream_mode": ["values"],
        },
        alias="kwargs",
    )
    multitask_strategy: Literal["reject", "interrupt", "rollback", "enqueue"] = _field(
        "What happened to a run that was in flight on the same thread.", "reject"
    )
    created_at: str = _time("When the run was requested.")
    updated_at: str = _time("When the run last changed.")
    total_input_tokens: int = _field("Tokens sent to models.", 5200)
    total_output_tokens: int = _field("Tokens written by models.", 640)
    total_tokens: int = _field("Both together.", 5840)
    llm_call_count: int = _field("Number of model calls.", 4)
    lead_agent_tokens: int = _field("Tokens of the lead agent.", 5840)
    subagent_tokens: int = _field("Tokens of sub-agents.", 0)
    middleware_tokens: int = _field("Tokens of titles, summaries and other calls beside the agent's.", 0)
    message_count: int = _field("Number of messages of the run.", 6)
    stop_reason: str | None = _field("Why the run ended before it was done, for programs.", None)
    error: str | None = _field("Why the run failed, for people.", None)
    attempt: int = _field("How often the run was started; more than 1 after a crash.", 1)


class SelectedRun(Run):
    """A run in a list; with `select` it has the selected fields only."""

    model_config = ConfigDict(json_schema_extra=_all_optional)


class BatchError(Answer):
    """A run of a batch that was not started."""

    status: Literal["error"] = _field("Always `error`.", "error")
    detail: str = _field("Why, for people.", "thread 3f0c5d1e has a run in flight")
    code: str = _field("Why, for programs.", "thread_busy")


class RunEvent(Open):
    """One row of a run's log."""

    thread_id: str = _field("Id of the thread.", _THREAD)
    run_id: str | None = _field("Id of the run.", _RUN)
    seq: int = _field("Number of the row; it grows with time.", 3000)
    event_type: str = _field(
        "`run.start`, `run.end`, `run.error`, `llm.human.input`, `llm.ai.response`, `llm.tool.result`, "
        "`subagent.start`, `subagent.step` or `subagent.end`.",
        "subagent.start",
    )
    category: str = _field("`message`, `subagent`, `trace`, `error` or `outputs`.", "subagent")
    content: Any = _field(
        "The message, or what the event says.", {"task_id": "call_1", "description": "Read the files"}
    )
    metadata: dict[str, Any] = _field("Who caused it.", {"caller": "subagent"})
    created_at: str = _time("When it happened.")


class MessageFeedback(Answer):
    """The user's rating of the run that a message ends."""

    feedback_id: str = _field("Id of the rating.", "7d0a4b6e-8a55-4a8c-8b0e-6b1b0f0c1d22")
    rating: int = _field("1 or -1.", 1)
    comment: str | None = _field("The user's comment.", None)


class MessageRow(RunEvent):
    """One message with the run that it belongs to."""

    event_type: str = _field(
        "`llm.human.input`, `llm.ai.response`, `llm.tool.result` or `message`.", "llm.ai.response"
    )
    category: str = _field("Always `message`.", "message")
    content: Message = _field("The message.")
    metadata: dict[str, Any] = _field("Who caused it.", {"caller": "lead_agent"})
    feedback: MessageFeedback | None = Field(
        None, description="The user's rating, on the last answer of a run.", examples=[None]
    )


class MessagePage(Answer):
    """A page of a thread's messages, oldest first."""

    data: list[MessageRow] = _field("The messages.")
    has_more: bool = _field("Whether there are older messages.", True)
    next_before_seq: int | None = _field("`before_seq` of the next page; null on the last.", 12000)


class RunMessages(Answer):
    """Messages of one run, oldest first."""

    data: list[MessageRow] = _field("The messages.")
    has_more: bool = _field("Whether there are more in the asked direction.", False)


class FileChange(Answer):
    """One file that a run created, changed or deleted."""

    path: str = _field("Path of the file.", _REPORT)
    root: str = _field("The folder it is in: `workspace`, `outputs` or `uploads`.", "outputs")
    status: Literal["created", "modified", "deleted"] = _field("What happened to it.", "created")
    binary: bool = _field("Whether it is no text.", False)
    sensitive: bool = _field("Whether its content is withheld because it looks secret.", False)
    size_before: int | None = _field("Size before the run, in bytes.", None)
    size_after: int | None = _field("Size after the run, in bytes.", 8)
    sha256_before: str | None = _field("Hash before the run.", None)
    sha256_after: str | None = _field("Hash after the run.", "0b1d" * 16)
    diff: str = _field(
        "Unified diff; empty unless `include_diff` is set.",
        f"--- /dev/null\n+++ {_REPORT}\n@@ -0,0 +1 @@\n+# Report\n",
    )
    diff_truncated: bool = _field("Whether the diff is cut.", False)
    diff_unavailable_reason: str | None = _field("Why there is no diff.", None)
    additions: int = _field("Lines added.", 1)
    deletions: int = _field("Lines deleted.", 0)


class ChangeSummary(Answer):
    """How much a run changed."""

    created: int = _field("Files created.", 1)
    modified: int = _field("Files changed.", 0)
    deleted: int = _field("Files deleted.", 0)
    symlink_created: int = _field("Symbolic links created.", 0)
    additions: int = _field("Lines added.", 1)
    deletions: int = _field("Lines deleted.", 0)
    truncated: bool = _field("Whether files or diffs are left out.", False)


class WorkspaceChanges(Answer):
    """What a run did to the thread's files."""

    available: bool = _field("Whether the files before the run are known.", True)
    version: int = _field("Version of this format.", 1)
    summary: ChangeSummary = _field("The changes in numbers.")
    files: list[FileChange] = _field(
        "The changed files; empty unless `include_files` or `include_diff` is set."
    )
    limits: dict[str, int] = _field(
        "What the comparison is limited to.",
        {
            "max_files": 500,
            "max_file_bytes": 262144,
            "max_diff_chars": 65536,
            "max_total_diff_chars": 1048576,
        },
    )


class Feedback(MessageFeedback):
    """A rating of a run or of one of its messages."""

    run_id: str = _field("Id of the run.", _RUN)
    thread_id: str = _field("Id of the thread.", _THREAD)
    user_id: str = _field("Who rated.", "default")
    message_id: str | None = _field("Id of the rated message; null for the whole run.", None)
    created_at: str = _time("When it was rated.")


class FeedbackStats(Answer):
    """How a run was rated."""

    run_id: str = _field("Id of the run.", _RUN)
    total: int = _field("Number of ratings.", 3)
    positive: int = _field("Ratings of 1.", 2)
    negative: int = _field("Ratings of -1.", 1)


class TaskStep(Answer):
    """One message of a sub-agent."""

    at: str = _time("When it came.")
    index: int | None = _field("Number of the message.", 1)
    message: Message | None = _field("The message.")


class SubagentTask(Answer):
    """The work of one sub-agent in a run."""

    task_id: str = _field("Id of the task: the id of the tool call that started it.", "call_1")
    description: str = _field("Title of the task.", "Read the files")
    subagent_type: str | None = _field("Which sub-agent works on it.", "general-purpose")
    status: str = _field(
        "`pending`, `running`, `completed`, `failed`, `cancelled` or `timed_out`.", "completed"
    )
    model_name: str | None = _field("The model that it uses.", "gpt-5")
    parent_task_id: str | None = _field("The task that started this one.", None)
    background: bool = _field("Whether the agent does not wait for it.", False)
    is_asking: bool = _field("Whether it waits for a person's answer.", False)
    started_at: str | None = _field("When it started. ISO 8601, UTC.", _TIME)
    completed_at: str | None = _field("When it ended. ISO 8601, UTC.", _TIME)
    message_count: int = _field("Number of its messages so far.", 3)
    result: str | None = _field("What it found.", "Redis is the cheapest.")
    error: str | None = _field("Why it failed.", None)
    usage: dict[str, int] | None = _field(
        "Tokens that it used.", {"input_tokens": 900, "output_tokens": 80, "total_tokens": 980}
    )
    steps: list[TaskStep] | None = Field(None, description="Its messages, where they are asked for.")


class TokenUsage(Answer):
    """Tokens of one model in a thread."""

    tokens: int = _field("Tokens in all.", 5840)
    runs: int = _field("Number of runs that used the model.", 2)
    input_tokens: int = _field("Tokens sent.", 5200)
    output_tokens: int = _field("Tokens written.", 640)
    cache_read_tokens: int = _field("Sent tokens that the provider had cached.", 0)
    calls: int = _field("Number of calls.", 4)


class CallerTokens(Answer):
    """Tokens by who used them."""

    lead_agent: int = _field("Tokens of the lead agent.", 5840)
    subagent: int = _field("Tokens of sub-agents.", 0)
    middleware: int = _field("Tokens of titles, summaries and other calls beside the agent's.", 0)


class ContextUsage(Answer):
    """How full the model's context is."""

    token_count: int = _field("Tokens of the conversation.", 4200)
    max_context_tokens: int | None = _field("Size of the model's context; null where it is unknown.", 128000)
    percentage: float | None = _field("Share of the context in percent.", 3.28)


class ThreadUsage(Answer):
    """Tokens and costs of a thread."""

    thread_id: str = _field("Id of the thread.", _THREAD)
    total_tokens: int = _field("Tokens in all.", 5840)
    total_input_tokens: int = _field("Tokens sent to models.", 5200)
    total_output_tokens: int = _field("Tokens written by models.", 640)
    total_runs: int = _field("Number of runs that are counted.", 2)
    by_model: dict[str, TokenUsage] = _field(
        "The same by model.",
        {
            "gpt-5": {
                "tokens": 5840,
                "runs": 2,
                "input_tokens": 5200,
                "output_tokens": 640,
                "cache_read_tokens": 0,
                "calls": 4,
            }
        },
    )
    by_caller: CallerTokens = _field("The same by who used them.")
    total_cost: float | None = _field("Cost, where it is in one currency.", 0.0123)
    currency: str | None = _field("Currency of `total_cost`.", "USD")
    total_costs: dict[str, float] = _field("Cost by currency.", {"USD": 0.0123})
    context_usage: ContextUsage | None = _field("How full the context is; null before the first message.")


# Branches


class Branched(Answer):
    """A thread that was forked from another."""

    thread_id: str = _field("Id of the new thread.", "a1c9a2f6-4c5f-4f4e-9f0a-0d8d9a5f6b33")
    parent_thread_id: str = _field("Id of the thread that it was forked from.", _THREAD)
    parent_checkpoint_id: str = _field("Id of the state that it begins with.", _CHECKPOINT)
    branched_from_message_id: str = _field("The last message that both share.", "lc_run--5e0b")
    workspace_clone_mode: Literal["as_of_message", "current_thread_best_effort"] = _field(
        "Whether the files are those of the message's time, or today's where those are no longer kept.",
        "as_of_message",
    )
    history_seed_mode: Literal["seeded"] = _field("Always `seeded`: the history is copied.", "seeded")


class PreparedRun(Answer):
    """What to send to `POST /threads/{thread_id}/runs/stream`."""

    input: dict[str, Any] = _field(
        "Field `input` of the run.",
        {"messages": [{"type": "human", "id": "q1", "content": "Compare the queues"}]},
    )
    checkpoint: dict[str, Any] = _field(
        "Field `checkpoint` of the run.",
        {"checkpoint_ns": "", "checkpoint_id": _CHECKPOINT, "checkpoint_map": {}},
    )
    metadata: dict[str, Any] = _field("Field `metadata` of the run.", {"regenerate_from_run_id": _RUN})
    target_run_id: str | None = _field("The run whose answer is replaced.", _RUN)
    workspace_restore_mode: Literal["as_of_message", "current_thread_best_effort"] = _field(
        "Whether the run begins with the files of that time, or with today's.", "as_of_message"
    )


class PreparedEdit(PreparedRun):
    """What to send to `POST /threads/{thread_id}/runs/stream` for an edited message."""

    replacement_human_message_id: str = _field("Id of the edited message.", "0f3c")
    source_message_ids: list[str | None] = _field(
        "The messages that the run replaces.", ["q1", "lc_run--5e0b"]
    )


# Assistants and crons


class Assistant(Answer):
    """A named set of defaults for runs."""

    assistant_id: str = _field("Id of the assistant.", "lead_agent")
    graph_id: str = _field("The graph that runs; always `lead_agent`.", "lead_agent")
    name: str = _field("Name of the assistant.", "lead_agent")
    description: str | None = _field(
        "What it is for.", "Plans, delegates, works with files and a shell, and answers."
    )
    config: dict[str, Any] = _field("Default `config` of its runs.", {})
    context: dict[str, Any] = _field("Default `context` of its runs.", {})
    metadata: dict[str, Any] = _field("Metadata of the client.", {"created_by": "system"})
    created_at: str = _time("When it was created.")
    updated_at: str = _time("When it last changed.")
    version: int = _field("Its version; each change adds one.", 1)


class SelectedAssistant(Assistant):
    """An assistant in a list; with `select` it has the selected fields only."""

    model_config = ConfigDict(json_schema_extra=_all_optional)


class AssistantGraph(Answer):
    """The graph of an assistant."""

    graph_id: str = _field("Id of the graph.", "lead_agent")
    nodes: list[dict[str, Any]] = _field("Its nodes.", [{"id": "model", "type": "runnable"}])
    edges: list[dict[str, Any]] = _field("Its edges.", [{"source": "__start__", "target": "model"}])


class AssistantSchemas(Answer):
    """JSON schemas of what an assistant takes and gives."""

    graph_id: str = _field("Id of the graph.", "lead_agent")
    input_schema: dict[str, Any] | None = _field("Schema of a run's `input`.", {"type": "object"})
    output_schema: dict[str, Any] | None = _field("Schema of the final values.", {"type": "object"})
    state_schema: dict[str, Any] | None = _field("Schema of the state.", {"type": "object"})
    config_schema: dict[str, Any] | None = _field("Schema of `config.configurable`.", {"type": "object"})
    context_schema: dict[str, Any] | None = _field("Schema of a run's `context`.", {"type": "object"})


class NoSubgraphs(Answer):
    """An empty object: sub-agents are not part of the graph."""


class Cron(Answer):
    """A schedule that starts runs."""

    cron_id: str = _field("Id of the cron.", "5f0a7c52-6d6e-4a8e-a3c9-7a1d2c3b4e55")
    assistant_id: str = _field("The assistant of its runs.", "lead_agent")
    thread_id: str | None = _field("The thread of its runs; null: each has its own.", None)
    on_run_completed: Literal["delete", "keep"] | None = _field(
        "What happens to a run's own thread.", "delete"
    )
    end_time: str | None = _field("When it starts its last run. ISO 8601, UTC.", None)
    schedule: str = _field("Times in cron syntax.", "0 9 * * 1-5")
    timezone: str | None = _field("Time zone of the schedule; null is UTC.", "Europe/Berlin")
    created_at: str = _time("When it was created.")
    updated_at: str = _time("When it last changed.")
    payload: dict[str, Any] = _field(
        "The request of its runs.",
        {
            "input": {"messages": [{"type": "human", "content": "Summarize the news"}]},
            "schedule": "0 9 * * 1-5",
        },
    )
    user_id: str = _field("Whose cron it is.", "default")
    next_run_date: str | None = _field("When it starts its next run. ISO 8601, UTC.", _TIME)
    metadata: dict[str, Any] = _field("Metadata of the client.", {})
    enabled: bool = _field("Whether it starts runs.", True)


class SelectedCron(Cron):
    """A cron in a list; with `select` it has the selected fields only."""

    model_config = ConfigDict(json_schema_extra=_all_optional)


class ScheduledTask(Answer):
    """A prompt that runs once or on a schedule, as DeerFlow's page shows it."""

    id: str = _field("Id of the scheduled task.", "8a1f6c0b-2d3e-4f5a-9b6c-7d8e9f0a1b66")
    thread_id: str | None = _field("The thread of its runs; null: each has its own.", None)
    context_mode: Literal["fresh_thread_per_run", "reuse_thread"] = _field(
        "Whether each run has a new thread.", "fresh_thread_per_run"
    )
    assistant_id: str = _field("The assistant of its runs.", "lead_agent")
    title: str = _field("Title.", "Morning news")
    prompt: str = _field("The message of each run.", "Summarize the news")
    schedule_type: Literal["once", "cron"] = _field("Whether it runs once or repeatedly.", "cron")
    schedule_spec: dict[str, Any] = _field("When it runs: `cron` or `run_at`.", {"cron": "0 9 * * *"})
    timezone: str | None = _field("Time zone of the schedule.", "Europe/Berlin")
    status: Literal["enabled", "paused", "running", "completed", "cancelled", "failed"] = _field(
        "Whether it runs; the last four are of tasks that run once.", "enabled"
    )
    next_run_at: str | None = _field("When it runs next. ISO 8601, UTC.", _TIME)
    last_run_at: str | None = _field("When it ran last. ISO 8601, UTC.", None)
    last_run_id: str | None = _field("Its last run.", None)
    last_thread_id: str | None = _field("The thread of its last run.", None)
    last_error: str | None = _field("Why its last run did not start.", None)
    run_count: int = _field("Number of runs so far.", 0)
    created_at: str = _time("When it was created.")
    updated_at: str = _time("When it last changed.")


class ScheduledRun(Answer):
    """What came of a scheduled task at one time."""

    id: str = _field("Id of this row.", "c2b4e1d0-0a1b-4c2d-8e3f-4a5b6c7d8e77")
    task_id: str = _field("Id of the scheduled task.", "8a1f6c0b-2d3e-4f5a-9b6c-7d8e9f0a1b66")
    thread_id: str | None = _field("The thread of the run.", _THREAD)
    run_id: str | None = _field("The run; null where none was started.", _RUN)
    scheduled_for: str = _time("The time that the schedule names.")
    trigger: str = _field("`scheduled` or `manual`.", "scheduled")
    status: Literal["queued", "running", "success", "interrupted", "failed", "skipped"] = _field(
        "What came of it.", "success"
    )
    error: str | None = _field("Why it failed.", None)
    started_at: str | None = _field("When the run was requested. ISO 8601, UTC.", _TIME)
    finished_at: str | None = _field("When the run ended. ISO 8601, UTC.", _TIME)
    created_at: str = _time("When this row was written.")


class Triggered(Answer):
    """A scheduled task that was started by hand."""

    id: str = _field("Id of the scheduled task.", "8a1f6c0b-2d3e-4f5a-9b6c-7d8e9f0a1b66")
    triggered: bool = _field("Always true.", True)
    thread_id: str = _field("The thread of the run.", _THREAD)


class DeletedTask(Answer):
    """A scheduled task that was deleted."""

    id: str = _field("Id of the scheduled task.", "8a1f6c0b-2d3e-4f5a-9b6c-7d8e9f0a1b66")
    deleted: bool = _field("Always true.", True)


# Files


class Upload(Answer):
    """A file that a user sent."""

    filename: str = _field("Name of the file; a number is added where the name was taken.", "queues.pdf")
    size: int = _field("Size in bytes.", 20480)
    path: str = _field("Path as the agent sees it.", "/mnt/user-data/uploads/queues.pdf")
    virtual_path: str = _field("Same as `path`.", "/mnt/user-data/uploads/queues.pdf")
    artifact_url: str = _field(
        "Where to download it.", f"/api/threads/{_THREAD}/artifacts/mnt/user-data/uploads/queues.pdf"
    )
    extension: str | None = _field("Extension with its dot.", ".pdf")
    modified: float = _field("When it was stored, in seconds since 1970.", 1769850000.0)
    markdown_note: str | None = Field(
        None, description="Why there is no text of it, or only a part.", examples=[None]
    )
    markdown_file: str | None = Field(
        None, description="Name of its text as Markdown.", examples=["queues.md"]
    )
    markdown_path: str | None = Field(
        None, description="Path of its text.", examples=["/mnt/user-data/uploads/queues.md"]
    )
    markdown_virtual_path: str | None = Field(
        None, description="Same as `markdown_path`.", examples=["/mnt/user-data/uploads/queues.md"]
    )
    markdown_artifact_url: str | None = Field(
        None,
        description="Where to download its text.",
        examples=[f"/api/threads/{_THREAD}/artifacts/mnt/user-data/uploads/queues.md"],
    )


class Uploaded(Answer):
    """The files that were stored."""

    success: bool = _field("Always true.", True)
    files: list[Upload] = _field("The stored files.")
    message: str = _field("What was done.", "1 file uploaded")
    skipped_files: list[str] = _field("Always empty.", [])


class UploadLimits(Answer):
    """How much may be uploaded in one request."""

    max_files: int = _field("Number of files.", 10)
    max_file_size: int = _field("Bytes of one file.", 52428800)
    max_total_size: int = _field("Bytes of all files.", 104857600)


class UploadList(Answer):
    """The uploads of a thread."""

    files: list[Upload] = _field("The uploads.")
    count: int = _field("Their number.", 1)


class Artifact(Answer):
    """A file that the agent wrote for the user."""

    path: str = _field("Path as the agent sees it.", _REPORT)
    filename: str = _field("Name of the file.", "report.md")
    size: int = _field("Size in bytes.", 8)
    modified: float = _field("When it last changed, in seconds since 1970.", 1769850000.0)
    artifact_url: str = _field("Where to download it.", f"/api/threads/{_THREAD}/artifacts{_REPORT}")


class ArtifactList(Answer):
    """The files that the agent wrote for the user."""

    files: list[Artifact] = _field("The files.")
    count: int = _field("Their number.", 1)


class ArtifactWritten(Answer):
    """A text file that was replaced."""

    path: str = _field("Path of the file.", _REPORT)
    sha256: str = _field("Hash of the new content.", "0b1d" * 16)
    size: int = _field("Size of the new content in bytes.", 8)


# Memory, agents, skills, MCP


class MemorySection(Answer):
    """A summary of one side of the user."""

    summary: str = _field("The summary.", "Works on queues.")
    updatedAt: str = _field("When it last changed; empty where never.", _TIME)  # noqa: N815 - the name on the wire


class UserSections(Answer):
    """Summaries of the user."""

    workContext: MemorySection = _field("Their work.")  # noqa: N815
    personalContext: MemorySection = _field("Their person.")  # noqa: N815
    topOfMind: MemorySection = _field("What they are busy with.")  # noqa: N815


class HistorySections(Answer):
    """Summaries of the past."""

    recentMonths: MemorySection = _field("The last months.")  # noqa: N815
    earlierContext: MemorySection = _field("The time before them.")  # noqa: N815
    longTermBackground: MemorySection = _field("What has always been so.")  # noqa: N815


class MemoryFact(Answer):
    """One thing that is remembered."""

    id: str = _field("Id of the fact.", "fact_5e0b7a")
    content: str = _field("The fact.", "Likes tea")
    category: str = _field("What kind of fact it is.", "preference")
    confidence: float = _field("How sure it is, from 0 to 1.", 0.8)
    createdAt: str = _field("When it was learnt.", _TIME)  # noqa: N815
    source: str = _field("Id of the thread it was learnt in, or `manual`.", "manual")


class Memory(Answer):
    """All that is remembered of a user."""

    version: str = _field("Version of this format.", "1.0")
    revision: int = _field("How often the memory was changed.", 7)
    lastUpdated: str = _field("When it last changed.", _TIME)  # noqa: N815
    user: UserSections = Field(
        description="Summaries of the user: `workContext`, `personalContext`, `topOfMind`."
    )
    history: HistorySections = Field(
        description="Summaries of the past: `recentMonths`, `earlierContext`, `longTermBackground`."
    )
    facts: list[MemoryFact] = _field("The facts.")


class MemorySettings(Open):
    """Section `memory` of the settings, without secrets; docs/reference/settings.md describes each key."""

    enabled: bool = _field("Whether the agent learns from conversations.", True)
    backend_config: dict[str, Any] = _field("Settings of the storage.", {})


class MemoryStatus(Answer):
    """The settings and content of the memory."""

    config: MemorySettings = _field("The settings.")
    data: Memory = _field("The content.")


class Agent(Answer):
    """An agent of the user's own."""

    name: str = _field("Name of the agent.", "poet")
    description: str = _field("What it is for.", "Rhymes")
    model: str | None = _field("The model that it uses; null: the run's.", None)
    tool_groups: list[str] | None = _field("Groups of tools that it may use; null: all.", None)
    skills: list[str] | None = _field("Skills that it may use; null: all.", None)
    model_settings: dict[str, Any] | None = _field("Temperature and token limit of its model calls.", None)
    thinking_enabled: bool | None = _field("Whether its model thinks; null: the run decides.", None)
    reasoning_effort: Literal["low", "medium", "high"] | None = _field("How much its model thinks.", None)
    soul: str | None = _field("Its instructions, in Markdown.", "You rhyme.")


class AgentList(Answer):
    """The user's agents by name."""

    agents: list[Agent] = _field("The agents.")


class NameCheck(Answer):
    """Whether a name can be given to a new agent."""

    available: bool = _field("Whether no agent has the name.", True)
    name: str = _field("The name in lower case.", "poet")


class Skill(Answer):
    """Instructions that agents load when they need them."""

    name: str = _field("Name of the skill.", "deep-research")
    description: str = _field("When agents use it.", "Researches a question in depth.")
    license: str | None = _field("Its license.", "MIT")
    category: str = _field("`public` for shipped skills, `custom` for installed ones.", "public")
    enabled: bool = _field("Whether agents may use it.", True)
    editable: bool = _field("Whether it can be changed.", False)


class SkillList(Answer):
    """The skills by name."""

    skills: list[Skill] = _field("The skills.")


class SkillInstalled(Answer):
    """A skill that was installed."""

    success: bool = _field("Always true.", True)
    skill_name: str = _field("Name of the skill.", "tidy-notes")
    message: str = _field("What was done.", "Skill 'tidy-notes' is installed")


class McpServers(Answer):
    """The MCP servers of `extensions_config.json`; secrets are masked."""

    mcp_servers: dict[str, dict[str, Any]] = _field(
        "The servers by name, as docs/reference/settings.md describes them.",
        {
            "demo": {
                "enabled": True,
                "type": "http",
                "url": "https://mcp.example.org/mcp",
                "description": "Demo",
            }
        },
    )


class LeftOutTool(Answer):
    """A tool of an MCP server that cannot be offered."""

    tool: str = _field("Name of the tool.", "long_job")
    reason: str = _field("Why.", "It requires task augmentation.")


class WithheldTool(Answer):
    """A tool of an MCP server that waits for approval because it is new or changed."""

    tool: str = _field("Name of the tool.", "search")
    fingerprint: str = _field("Send it to approve the tool as it is now.", "9f86d081884c7d65")
    reason: str = _field("Why it is withheld.", "Its description changed.")
    changed: list[str] = _field("What changed.", ["description"])
    before: Any = _field("The tool as it was approved.", {"description": "Searches."})
    now: Any = _field("The tool as it is now.", {"description": "Searches everything."})


class McpServer(Answer):
    """The state of one MCP server."""

    name: str = _field("Name of the server.", "demo")
    state: Literal["idle", "opening", "ready", "failed"] = _field(
        "`ready`: reached; `failed`: `problem` says why; `idle`: not used yet.", "ready"
    )
    problem: str | None = _field("Why it does not work.", None)
    tools: list[str] = _field("Tools that are offered.", ["demo_search"])
    left_out: list[LeftOutTool] = _field("Tools that cannot be offered.", [])
    withheld: list[WithheldTool] = _field("Tools that wait for approval.", [])


class McpStatus(Answer):
    """The state of all MCP servers that are enabled."""

    servers: list[McpServer] = _field("The servers.")


class McpTask(Open):
    """A task that an MCP server works on in the background; this server starts none."""

    task_id: str = _field("Id of the task.", "m1")


class AllowedCallRow(Answer):
    """A tool call that runs without approval."""

    id: str = _field("Id of the permission.", "always-5e0b7a")
    tool: str = _field("Name of the tool.", "bash")
    args: str = _field("The arguments as JSON, cut where they are long.", '{"command":"git push"}')
    scope: Literal["thread", "always"] = _field("Where the permission counts.", "thread")
    thread_id: str = _field("The thread in which it was given.", _THREAD)
    thread_title: str = _field("The title of that thread; empty where it has none.", "Release the notes")
    created_at: str = _time("When it was given.")


class AllowedCallRows(Answer):
    """The tool calls that run without approval."""

    allowed_calls: list[AllowedCallRow] = _field("The permissions, newest first.")


# Store, goals, suggestions, teams


class StoreItem(Answer):
    """One item of the store."""

    namespace: list[str] = _field("Where it is kept.", ["notes", "work"])
    key: str = _field("Its name.", "queues")
    value: dict[str, Any] = _field("Its content.", {"text": "Redis is the cheapest."})
    created_at: str = _time("When it was first written.")
    updated_at: str = _time("When it last changed.")


class FoundItem(StoreItem):
    """One item that a search found."""

    score: float | None = _field("How well it fits the query; null without a query.", None)


class StoreItems(Answer):
    """The items that a search found."""

    items: list[FoundItem] = _field("The items.")


class StoreNamespaces(Answer):
    """Namespaces that hold items."""

    namespaces: list[list[str]] = _field("The namespaces.", [["notes", "work"]])


class GoalProgress(Open):
    """A goal and how far the agent is."""

    objective: str = _field("What is to be reached.", "Finish the report")
    status: str = _field("`active` while the agent works towards it.", "active")
    created_at: str = _time("When it was set.")
    updated_at: str = _time("When it last changed.")
    continuation_count: int = _field("How often the agent went on by itself.", 0)
    max_continuations: int = _field("How often it may.", 8)
    no_progress_count: int = _field("How often it went on without progress.", 0)
    max_no_progress_continuations: int = _field("How often it may.", 2)


class ThreadGoal(Answer):
    """The goal of a thread."""

    goal: GoalProgress | None = _field("The goal; null where there is none.")


class SuggestionSettings(Answer):
    """Whether questions are suggested."""

    enabled: bool = _field("Whether they are.", True)
    max_suggestions: int = _field("Most questions at once.", 3)


class Suggestions(Answer):
    """Questions that the user might ask next."""

    suggestions: list[str] = _field(
        "The questions; empty where the model gave none.", ["Which one loses the fewest jobs?"]
    )


class Polished(Answer):
    """A message in a better wording."""

    rewritten_text: str = _field("The message.", "Please compare the three queues by cost and risk.")
    changed: bool = _field("Whether it differs from what was sent.", True)


class TeamRole(Answer):
    """A role that a member of a team may have."""

    name: str = _field("Name of the role.", "market_researcher")
    description: str = _field(
        "What it does.", "Finds out about markets, competitors, customers, products and trends."
    )
    stage: str = _field("When it works.", "work")


class TeamRoles(Answer):
    """The roles that members of a team may have."""

    roles: list[TeamRole] = _field("The roles.")


# The thread protocol


class CommandResult(Answer):
    """The answer to a command of the thread protocol."""

    type: Literal["success", "error"] = _field("Whether the command was carried out.", "success")
    id: int | str | None = _field("Id of the command.", 1)
    result: dict[str, Any] | None = Field(None, description="What it gave.", examples=[{"run_id": _RUN}])
    meta: dict[str, Any] | None = Field(
        None,
        description="`applied_through_seq`: the last event that the result includes.",
        examples=[{"applied_through_seq": 0}],
    )
    error: str | None = Field(None, description="Why it failed, for programs.", examples=[None])
    message: str | None = Field(None, description="Why it failed, for people.", examples=[None])


# The server


class SandboxHealth(Answer):
    """The state of the sandbox."""

    tier: str = _field("The sandbox that is configured.", "isolated")
    ready: bool | None = _field("Whether it works; null before the first test.", True)
    problem: str | None = _field("Why it does not work, and what to do.", None)


class Fault(Answer):
    """Something configured that does not work."""

    key: str = _field("The setting.", "tools[0].use")
    problem: str = _field("What does not work.", "no module named 'my_tools'")
    fix: str | None = _field("What to do.", "Install the module, or remove the entry.")
    is_security: bool = _field("Whether it weakens the protection of the server.", False)
    is_broken: bool = _field("Whether the setting has no effect at all.", True)


class ConfigHealth(Answer):
    """The state of the settings."""

    path: str | None = _field("The file that is read.", "config.yaml")
    problem: str | None = _field("Why the file as it is now is not used.", None)
    problems: list[str] = _field("What is wrong in the file that is used.", [])
    restart_needed: list[str] = _field("Sections whose change needs a restart.", [])
    faults: list[Fault] = _field("Configured things that do not work, security-relevant ones first.", [])


class Health(Answer):
    """Whether the server works."""

    status: Literal["healthy"] = _field(
        "Always `healthy`: a server that does not work does not answer.", "healthy"
    )
    service: str = _field("What answers.", "deer-flow-gateway")
    models: list[str] = _field("Names of the chat models.", ["gpt-5"])
    sandbox: SandboxHealth = _field("State of the configured sandbox.")
    config: ConfigHealth = _field("State of the settings files.")


class Ok(Answer):
    """Confirms that the server answers."""

    ok: Literal[True] = _field("Always true.", True)


class ServerInfo(Answer):
    """What this server is."""

    version: str = _field("Version of DeerFlow.", "3.0.0")
    flags: dict[str, bool] = _field(
        "Parts of LangGraph's API that are on.", {"assistants": True, "crons": True, "store": True}
    )


class ChatModel(Answer):
    """A chat model of the settings."""

    name: str = _field("Name that requests use.", "gpt-5")
    model: str = _field("Name that the provider uses.", "gpt-5")
    display_name: str | None = _field("Name that pages show.", "GPT-5")
    description: str | None = _field("What it is good for.", None)
    supports_thinking: bool = _field("Whether it can think before it answers.", False)
    supports_reasoning_effort: bool = _field("Whether how much it thinks can be set.", True)
    supports_vision: bool = _field("Whether it sees pictures.", True)


class Switch(Answer):
    """Whether a feature is on."""

    enabled: bool = _field("Whether it is on.", True)


class ModelList(Answer):
    """The chat models."""

    models: list[ChatModel] = _field("The models; the first is the default.")
    token_usage: Switch = _field("Whether pages show token counts.")


class Features(Answer):
    """Which optional features are on."""

    agents_api: Switch = _field("Agents of the user's own over HTTP.")
    browser_control: Switch = _field("A browser for the agent.")
    mcp_tasks: Switch = _field("Background tasks of MCP servers.")


class User(Answer):
    """The user who acts."""

    id: str = _field("Id of the user.", "default")
    email: str = _field("Address of the user.", "default@test.local")
    system_role: str = _field("`admin` or `user`.", "admin")
    needs_setup: bool = _field("Whether the account has to be completed.", False)
    oauth_provider: str | None = _field("The identity provider of the account.", None)


class SetupStatus(Answer):
    """Whether the first account has to be created."""

    needs_setup: bool = _field("Whether it has.", False)
    registration_enabled: bool = _field("Whether users may create accounts.", False)


class IdentityProviders(Answer):
    """Identity providers for logins."""

    providers: list[dict[str, Any]] = _field("The providers; empty without login.", [])


class LoggedOut(Answer):
    """Confirms a logout."""

    message: str = _field("What was done.", "Logged out")


class ChannelProviders(Answer):
    """Chat services that can be connected."""

    enabled: bool = _field("Whether this server connects to chat services.", False)
    providers: list[dict[str, Any]] = _field("The services.", [])


class ChannelConnections(Answer):
    """Accounts of chat services that are connected."""

    connections: list[dict[str, Any]] = _field("The connections.", [])


class LarkCli(Answer):
    """The command line program of the Lark integration."""

    available: bool = _field("Whether it is installed.", False)
    path: str | None = _field("Where it is.", None)
    version: str | None = _field("Its version.", None)
    error: str | None = _field(
        "Why it cannot be used.", "The Lark integration is not available on this server."
    )


class LarkAuth(Answer):
    """The authorization of the Lark integration."""

    status: str = _field("Whether the user has authorized it.", "unavailable")
    message: str | None = _field(
        "Why it cannot be used.", "The Lark integration is not available on this server."
    )
    user: str | None = _field("Who has authorized it.", None)
    verified: bool = _field("Whether that was checked.", False)


class LarkStatus(Answer):
    """The state of the Lark integration."""

    installed: bool = _field("Whether it is installed.", False)
    version: str = _field("Installed version; empty where it is not.", "")
    manifest_version: str | None = _field("Version of the manifest.", None)
    latest_available_version: str | None = _field("Version that can be installed.", None)
    runtime_version_mismatch: bool = _field("Whether program and skills have different versions.", False)
    app_configured: bool = _field("Whether an app is registered.", False)
    app_id: str | None = _field("Id of the app.", None)
    app_brand: str | None = _field("`feishu` or `lark`.", None)
    skills_expected: int = _field("Number of its skills.", 0)
    skills_installed: int = _field("Number of installed skills.", 0)
    installed_skills: list[str] = _field("Installed skills.", [])
    enabled_skills: list[str] = _field("Skills that agents may use.", [])
    install_path: str = _field("Where it is installed.", "")
    cli: LarkCli = _field("Its command line program.")
    auth: LarkAuth = _field("Its authorization.")
    sandbox_runtime_mode: str = _field("How sandboxes get the program.", "none")
    sandbox_runtime_ready: bool = _field("Whether sandboxes have it.", False)
    sandbox_runtime_detail: str | None = _field(
        "Why they have not.", "The Lark integration is not available on this server."
    )
