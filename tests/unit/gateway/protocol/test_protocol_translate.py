"""A run's log, entry by entry, becomes the events that clients of the thread protocol know."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from deerflow.domain import RunRecord, RunRequest, RunStatus, StreamEvent
from deerflow.gateway.protocol.events import ProtocolEvent, run_index
from deerflow.gateway.protocol.translate import RunTranslator
from deerflow.gateway.thread_follower import ThreadRun

NOW = datetime(2026, 11, 15, tzinfo=UTC)
ALL = ("values", "messages", "updates", "custom", "tasks", "checkpoints")
HUMAN = {"content": "2+3", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "id": "h1"}
CALL = {"name": "add", "args": {"a": 2, "b": 3}, "id": "call_1", "type": "tool_call"}
ANSWER = {
    "content": "",
    "additional_kwargs": {"reasoning_content": "hm"},
    "response_metadata": {"finish_reason": "tool_calls"},
    "type": "ai",
    "name": None,
    "id": "lc_run--1",
    "tool_calls": [CALL],
    "invalid_tool_calls": [],
    "usage_metadata": {"input_tokens": 3},
}
RESULT = {
    "content": "5",
    "type": "tool",
    "name": "add",
    "id": "t1",
    "tool_call_id": "call_1",
    "status": "success",
}


def a_run(*, modes: tuple[str, ...] = ALL, status: RunStatus = RunStatus.SUCCESS, **more: Any) -> RunRecord:
    return RunRecord("run-1", RunRequest("thread-1", stream_modes=modes), status, NOW, NOW, **more)


class Log:
    """Feeds entries to a translator and keeps what comes out."""

    def __init__(
        self, run: RunRecord | None = None, *, index: int = 0, channels: frozenset[str] | None = None
    ):
        self.run = run or a_run()
        self.translator = RunTranslator(ThreadRun(self.run, index), channels=channels)
        self.seq = 0
        self.events: list[ProtocolEvent] = []

    def add(self, kind: str, payload: Any) -> list[tuple[str, tuple[str, ...], Any]]:
        entry = StreamEvent(
            self.seq, 1000 + self.seq, kind, json.dumps(payload, separators=(",", ":")).encode()
        )
        self.seq += 1
        new = self.translator.end(entry, self.run) if kind == "end" else self.translator.translate(entry)
        self.events += new
        return [(event.method, event.namespace, event.data) for event in new]

    def chunk(self, **fields: Any) -> list[Any]:
        """Add a piece of an answer; return the data of the events."""
        piece = {"content": "", "type": "AIMessageChunk", "id": "lc_run--1", **fields}
        return [data for _, _, data in self.add("messages", [piece, {}])]


def lifecycle(events: list[tuple[str, tuple[str, ...], Any]]) -> list[str]:
    return [data["event"] for method, _, data in events if method == "lifecycle"]


def test_a_run_begins_once_and_ends_once() -> None:
    log = Log()

    began = log.add("metadata", {"run_id": "run-1", "attempt": 1})
    again = log.add("metadata", {"run_id": "run-1", "attempt": 2})
    ended = log.add("end", None)

    assert began == [("lifecycle", (), {"event": "running", "graph_name": "lead_agent"})]
    assert again == []
    assert ended == [("lifecycle", (), {"event": "completed", "graph_name": "lead_agent"})]


def test_the_numbers_rise_within_a_run_and_from_run_to_run_and_do_not_depend_on_the_reader() -> None:
    logs = [Log(), Log(channels=frozenset({"lifecycle"})), Log(index=1)]
    for log in logs:
        log.add("metadata", {})
        log.add("values", {"messages": [HUMAN]})
        log.add("checkpoints", {"config": {"configurable": {"checkpoint_id": "c1"}}, "metadata": {"step": 0}})
        log.add("updates", {"model": {"messages": [ANSWER]}})
        log.add("end", None)

    first, narrow, second = ([(event.seq, event.id) for event in log.events] for log in logs)

    assert first[0] == (1, "run-1:0.0")
    assert [seq for seq, _ in first] == sorted({seq for seq, _ in first})
    assert narrow == first
    assert second[0][0] > first[-1][0]
    assert run_index(second[0][0]) == 1
    assert second[-1][0] < 2**53


def test_text_and_reasoning_come_as_blocks_that_start_grow_and_finish_together() -> None:
    log = Log()

    events = [
        *log.chunk(additional_kwargs={"reasoning_content": "r0 "}),
        *log.chunk(content="t0 "),
        *log.chunk(content=[{"type": "text", "text": "t1"}], usage_metadata={"input_tokens": 3}),
        *log.chunk(response_metadata={"finish_reason": "stop"}, chunk_position="last"),
    ]

    assert events == [
        {"event": "message-start", "role": "ai", "id": "lc_run--1"},
        {"event": "content-block-start", "index": 0, "content": {"type": "reasoning", "reasoning": ""}},
        {
            "event": "content-block-delta",
            "index": 0,
            "delta": {"type": "reasoning-delta", "reasoning": "r0 "},
        },
        {"event": "content-block-start", "index": 1, "content": {"type": "text", "text": ""}},
        {"event": "content-block-delta", "index": 1, "delta": {"type": "text-delta", "text": "t0 "}},
        {"event": "content-block-delta", "index": 1, "delta": {"type": "text-delta", "text": "t1"}},
        {"event": "content-block-finish", "index": 0, "content": {"type": "reasoning", "reasoning": "r0 "}},
        {"event": "content-block-finish", "index": 1, "content": {"type": "text", "text": "t0 t1"}},
        {"event": "message-finish", "usage": {"input_tokens": 3}, "metadata": {"finish_reason": "stop"}},
    ]


def test_arguments_of_a_call_come_in_both_forms_and_are_parsed_at_the_end() -> None:
    log = Log()

    events = [
        *log.chunk(tool_call_chunks=[{"id": "call_1", "name": "add", "args": '{"a": 2,', "index": 0}]),
        *log.chunk(tool_call_chunks=[{"id": None, "name": None, "args": ' "b": 3}', "index": 0}]),
        *log.chunk(chunk_position="last"),
    ]

    start = {"type": "tool_call_chunk", "id": "call_1", "name": "add", "args": "", "index": 0}
    assert events[1] == {"event": "content-block-start", "index": 0, "content": start}
    assert events[3] == {
        "event": "content-block-delta",
        "index": 0,
        "delta": {"type": "tool-call-delta", "args": ' "b": 3}'},
        "content": {"type": "tool_call_chunk", "args": ' "b": 3}'},
    }
    finished = {"type": "tool_call", "id": "call_1", "name": "add", "args": {"a": 2, "b": 3}}
    assert events[4] == {"event": "content-block-finish", "index": 0, "content": finished}


def test_arguments_that_are_no_json_object_make_an_invalid_call() -> None:
    for args in ('{"a": ', "[1]"):
        log = Log()
        log.chunk(tool_call_chunks=[{"id": "c", "name": "add", "args": args, "index": 0}])

        events = log.chunk(chunk_position="last")

        assert events[0]["content"]["type"] == "invalid_tool_call"
        assert events[0]["content"]["args"] == args


def test_an_answer_that_breaks_off_ends_before_the_next_one_and_before_the_run() -> None:
    log = Log()
    log.add("metadata", {})
    log.chunk(content="half")

    other = log.chunk(id="lc_run--2", content="new")
    late = log.chunk(content="too late")
    ended = log.add("end", None)

    assert [data["event"] for data in other][:3] == [
        "content-block-finish",
        "message-finish",
        "message-start",
    ]
    assert late == []
    assert [data["event"] for _, _, data in ended] == ["content-block-finish", "message-finish", "completed"]


def test_a_message_that_was_streamed_is_not_told_again_and_one_that_was_not_is_told_whole() -> None:
    log = Log()
    log.chunk(content="hi", chunk_position="last")

    again = log.add("messages", [{**ANSWER, "id": "lc_run--1"}, {}])
    whole = log.add("messages", [{**ANSWER, "id": "other"}, {}])
    human = log.add("messages", [HUMAN, {}])

    assert again == []
    assert [data["event"] for _, _, data in whole] == [
        "message-start",
        "content-block-start",
        "content-block-delta",
        "content-block-finish",
        "content-block-start",
        "content-block-finish",
        "message-finish",
    ]
    assert human == []


def test_a_tool_starts_with_its_task_and_finishes_with_its_result() -> None:
    log = Log()

    started = log.add("tasks", {"id": "uuid-1", "name": "tools", "input": [CALL], "triggers": []})
    other = log.add("tasks", {"id": "uuid-2", "name": "model", "input": {"messages": [ANSWER]}})
    finished = log.add("messages", [RESULT, {}])
    updated = log.add("updates", {"tools": {"messages": [RESULT]}})

    assert started == [
        (
            "tools",
            (),
            {
                "event": "tool-started",
                "tool_call_id": "call_1",
                "tool_name": "add",
                "input": {"a": 2, "b": 3},
            },
        )
    ]
    assert other == []
    assert finished[0] == (
        "tools",
        (),
        {"event": "tool-finished", "tool_call_id": "call_1", "output": RESULT},
    )
    assert {namespace for _, namespace, _ in finished[1:]} == {("tools:call_1",)}
    assert finished[1][2] == {"event": "message-start", "role": "tool", "id": "t1", "tool_call_id": "call_1"}
    assert finished[3][2] == {
        "event": "content-block-delta",
        "index": 0,
        "content": {"type": "text", "text": "5"},
    }
    assert [method for method, _, _ in updated] == ["updates"]


def test_a_run_of_the_older_routes_starts_tools_with_the_answer_that_calls_them() -> None:
    log = Log(a_run(modes=("values",)))

    events = log.add("updates", {"model": {"messages": [ANSWER]}})
    failed = log.add("updates", {"tools": {"messages": [{**RESULT, "status": "error", "content": "no"}]}})

    assert [data.get("event") for _, _, data in events] == ["tool-started", None]
    assert failed[0][2] == {"event": "tool-error", "tool_call_id": "call_1", "message": "no"}


def test_values_are_short_and_come_behind_their_checkpoint() -> None:
    log = Log()
    place = {"configurable": {"checkpoint_id": "c2", "__deerflow_fence__": ["run-1", 1]}}
    above = {"configurable": {"checkpoint_id": "c1"}}

    held = log.add("values", {"messages": [HUMAN, ANSWER], "title": "T"})
    events = log.add(
        "checkpoints",
        {"config": place, "parent_config": above, "metadata": {"step": 1, "source": "loop"}, "values": {}},
    )

    assert held == []
    assert events[0] == ("checkpoints", (), {"id": "c2", "step": 1, "source": "loop", "parent_id": "c1"})
    method, _, state = events[1]
    assert method == "values"
    assert state["messages"][0] == {"type": "human", "content": "2+3", "id": "h1"}
    assert state["messages"][1] == {
        "type": "ai",
        "id": "lc_run--1",
        "content": [
            {"type": "reasoning", "reasoning": "hm"},
            {"type": "tool_call", "id": "call_1", "name": "add", "args": {"a": 2, "b": 3}},
        ],
        "tool_calls": [CALL],
        "response_metadata": {"finish_reason": "tool_calls", "output_version": "v1"},
    }


def test_values_without_a_checkpoint_behind_them_are_not_lost() -> None:
    log = Log()
    log.add("metadata", {})
    log.add("values", {"messages": []})

    ended = log.add("end", None)

    assert [method for method, _, _ in ended] == ["values", "lifecycle"]


def test_a_question_is_requested_in_words_for_both_clients_and_ends_the_run_interrupted() -> None:
    log = Log()
    log.add("tasks", {"id": "uuid-1", "name": "tools", "input": [CALL]})

    paused = log.add("tasks", {"id": "uuid-1", "name": "tools", "interrupts": [{"id": "i1"}], "result": None})
    asked = log.add("updates", {"__interrupt__": [{"id": "i1", "value": {"question": "ok?"}}]})
    ended = log.add("end", None)

    assert paused[0][2]["event"] == "tool-error"
    question = {"question": "ok?"}
    assert asked == [("input.requested", (), {"interrupt_id": "i1", "payload": question, "value": question})]
    assert [event.channels for event in log.events if event.method == "input.requested"] == [{"input"}]
    assert lifecycle(ended)[-1] == "interrupted"


def test_how_a_run_ended_is_how_its_root_ends() -> None:
    ends = {
        RunStatus.SUCCESS: {"event": "completed"},
        RunStatus.INTERRUPTED: {"event": "interrupted"},
        RunStatus.ERROR: {"event": "failed", "error": "the model is away"},
        RunStatus.TIMEOUT: {"event": "failed", "error": "the model is away"},
    }
    for status, wanted in ends.items():
        log = Log(a_run(status=status))
        log.add("metadata", {})
        if status in (RunStatus.ERROR, RunStatus.TIMEOUT):
            log.add("error", {"message": "the model is away", "name": "ModelError"})

        (events,) = log.add("end", None)

        assert events[2] == {**wanted, "graph_name": "lead_agent"}


def test_a_run_that_was_stopped_before_it_began_still_begins_and_ends() -> None:
    log = Log(a_run(status=RunStatus.INTERRUPTED))

    assert lifecycle(log.add("end", None)) == ["running", "interrupted"]


def test_a_failure_keeps_its_text_when_the_log_has_none() -> None:
    log = Log(replace(a_run(status=RunStatus.ERROR), error="given up"))

    assert log.add("end", None)[-1][2]["error"] == "given up"


def test_a_sub_agent_has_a_namespace_of_its_own_below_its_call() -> None:
    log = Log()
    log.add("tasks", {"id": "uuid-1", "name": "tools", "input": [{**CALL, "name": "task"}]})
    event = {"task_id": "call_1", "model_name": "m"}

    started = log.add(
        "custom", {"type": "task_started", "description": "part", "subagent_type": "general-purpose", **event}
    )
    step = log.add("custom", {"type": "task_running", "message": {**ANSWER, "tool_calls": []}, **event})
    ended = log.add("custom", {"type": "task_completed", "result": "done", **event})

    here = ("tools:uuid-1",)
    assert started[0] == (
        "lifecycle",
        here,
        {
            "event": "started",
            "namespace": here,
            "graph_name": "general-purpose",
            "trigger_call_id": "uuid-1",
            "cause": {"type": "toolCall", "tool_call_id": "call_1"},
        },
    )
    assert started[1][1:] == (
        here,
        {"messages": [{"type": "human", "content": "part", "id": "call_1-asked"}]},
    )
    assert {namespace for method, namespace, _ in step if method == "messages"} == {here}
    assert lifecycle(ended) == ["completed"]
    assert [method for method, _, _ in step][-1] == "custom"


def test_sub_agents_below_sub_agents_nest_and_end_with_their_run() -> None:
    log = Log(a_run(status=RunStatus.INTERRUPTED))
    log.add("metadata", {})
    log.add("custom", {"type": "task_started", "task_id": "a", "description": "outer"})

    inner = log.add(
        "custom", {"type": "task_started", "task_id": "b", "parent_task_id": "a", "description": "inner"}
    )
    for task in "ba":  # what the inner one asks comes up through the outer one
        log.add("custom", {"type": "task_asking", "task_id": task})
    asked = log.add("updates", {"__interrupt__": [{"id": "i1", "value": {"task_id": "a"}}]})
    ended = log.add("end", None)

    assert inner[0][1] == ("tools:task-a", "tools:task-b")
    assert [place for _, place, _ in asked] == [("tools:task-a", "tools:task-b")]
    assert lifecycle(ended) == ["interrupted", "interrupted", "interrupted"]


def test_a_graph_below_the_root_starts_with_its_first_event_and_ends_with_its_task() -> None:
    log = Log(a_run(modes=("values", "tasks")))
    log.add("metadata", {})

    started = log.add("values|node:uuid-9", {"messages": []})
    ended = log.add("tasks", {"id": "uuid-9", "name": "node", "error": None, "interrupts": [], "result": {}})

    assert [(method, namespace) for method, namespace, _ in started] == [
        ("lifecycle", ("node:uuid-9",)),
        ("values", ("node:uuid-9",)),
    ]
    assert ended == [("lifecycle", ("node:uuid-9",), {"event": "completed", "graph_name": "node"})]


def test_an_answer_of_a_thousand_blocks_still_finishes() -> None:
    log = Log()
    pieces = [{"id": f"c{n}", "name": "add", "args": "{}", "index": n} for n in range(1500)]
    log.chunk(tool_call_chunks=pieces[:500])
    log.chunk(tool_call_chunks=pieces[500:1000])
    log.chunk(tool_call_chunks=pieces[1000:])

    events = log.chunk(chunk_position="last")

    seqs = [event.seq for event in log.events]
    assert events[-1]["event"] == "message-finish"
    assert seqs == sorted(set(seqs))


def test_custom_values_pass_as_they_are_and_named_ones_have_a_channel_too() -> None:
    log = Log()

    for value in ("text", 7, None, ["a"], {"name": "progress", "payload": {"done": 1}}):
        assert log.add("custom", value) == [("custom", (), value)]

    assert log.events[0].channels == {"custom"}
    assert log.events[-1].channels == {"custom", "custom:progress"}


def test_an_answer_that_is_given_again_ends_with_an_error() -> None:
    log = Log()
    log.add("messages", [{"type": "AIMessageChunk", "id": "a", "content": "One"}, {}])

    withdrawn = log.add("messages", [{"type": "remove", "id": "a", "content": ""}, {}])
    again = log.add("messages", [{"type": "AIMessageChunk", "id": "b", "content": "One two"}, {}])

    assert [data["event"] for _, _, data in withdrawn] == ["error"]
    assert again[0][2] == {"event": "message-start", "role": "ai", "id": "b"}
