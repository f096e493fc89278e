"""One fold gives every reader of `task_…` events the same state."""

from typing import Any

from deerflow.domain.task_events import TaskEvents


def event(kind: str, task_id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"type": f"task_{kind}", "task_id": task_id, **fields}


def test_the_life_of_a_task_is_folded_into_its_state() -> None:
    events = TaskEvents()

    changes = [
        events.apply(event("started", description="Look", subagent_type="bash"), at="1"),
        events.apply(event("running", message={"type": "ai"}, total_messages=1, usage={"total_tokens": 3})),
        events.apply(event("asking")),
        events.apply(event("started", description="Look"), at="2"),
        events.apply(event("completed", result="found"), at="3"),
        events.apply(event("started", description="Look"), at="4"),
    ]

    kinds = [change.kind for change in changes if change is not None]
    assert kinds == ["started", "message", "asking", "resumed", "ended", "started"]
    task = events.tasks["a"]
    assert (task.description, task.subagent_type, task.message_count) == ("Look", "bash", 1)
    assert (task.started_at, task.completed_at, task.result) == ("1", "3", "found")
    assert (task.usage, task.is_asking, task.path) == ({"total_tokens": 3}, False, ("a",))


def test_a_nested_task_has_the_path_of_its_parents() -> None:
    events = TaskEvents()
    events.apply(event("started"))

    change = events.apply(event("started", "b", parent_task_id="a"))

    assert change is not None
    assert change.task.path == ("a", "b")


def test_a_task_cancelled_in_the_queue_is_listed_but_changes_nothing_shown() -> None:
    events = TaskEvents()

    assert events.apply(event("cancelled", error="cancelled by user")) is None
    assert events.tasks["a"].status == "cancelled"


def test_other_events_are_ignored() -> None:
    events = TaskEvents()

    for other in (None, "text", {"type": "llm_retry"}, {"type": "team_finding", "task_id": "t.a"}):
        assert events.apply(other) is None

    assert events.tasks == {}
