"""What of a long conversation stays, and what the model learns of the rest."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from deerflow.agents.messages import NOTE, REPORTED, STARTED
from deerflow.agents.middlewares.summarization import (
    clipped,
    durable_state,
    extract,
    split,
    stale_results,
    summary_message,
    transcript,
    without_results,
)
from deerflow.agents.middlewares.tokens import TokenCounter, encoder, estimate, measure, measure_text
from deerflow.config import ContextSize


def turn(number: int, *, steps: int = 1, size: int = 1000) -> list[AnyMessage]:
    messages: list[AnyMessage] = [HumanMessage(f"question {number}", id=f"h{number}")]
    for step in range(steps):
        call = {"name": "bash", "args": {"command": "x"}, "id": f"c{number}-{step}"}
        messages += [
            AIMessage("", id=f"a{number}-{step}", tool_calls=[call]),
            ToolMessage("r" * size, id=f"t{number}-{step}", tool_call_id=f"c{number}-{step}", name="bash"),
        ]
    return [*messages, AIMessage(f"answer {number}", id=f"f{number}")]


def ids(messages: list[AnyMessage]) -> list[str | None]:
    return [message.id for message in messages]


TURN = measure(turn(2))


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (ContextSize(type="messages", value=4), ["h2", "a2-0", "t2-0", "f2"]),
        (ContextSize(type="messages", value=2), ["h2", "a2-0", "t2-0", "f2"]),
        (ContextSize(type="messages", value=1), ["h2", "f2"]),
        (ContextSize(type="messages", value=99), ["h1", "a1-0", "t1-0", "f1", "h2", "a2-0", "t2-0", "f2"]),
        (ContextSize(type="tokens", value=20), ["h2", "f2"]),
        (ContextSize(type="tokens", value=TURN + 3), ["h2", "a2-0", "t2-0", "f2"]),
        (ContextSize(type="fraction", value=(TURN + 3) / 10_000), ["h2", "a2-0", "t2-0", "f2"]),
    ],
)
def test_the_tail_stays_with_whole_steps_and_the_question(keep: ContextSize, kept: list[str]) -> None:
    parted = split([*turn(1), *turn(2)], keep, window=10_000)

    assert ids(parted.kept) == kept
    assert set(ids(parted.removed)).isdisjoint(kept)
    assert len(parted.kept) + len(parted.removed) == 8


def test_the_step_in_progress_stays_however_small_the_limit() -> None:
    messages = turn(1, steps=3)[:-1]

    parted = split(messages, ContextSize(type="tokens", value=1))

    assert ids(parted.kept) == ["h1", "a1-2", "t1-2"]


def started(task_id: str) -> list[AnyMessage]:
    """Return a step that starts a background task beside another call."""
    calls = [
        {"name": "task", "args": {"prompt": "x"}, "id": task_id},
        {"name": "ls", "args": {}, "id": f"{task_id}-ls"},
    ]
    return [
        AIMessage("", id=f"start-{task_id}", tool_calls=calls),
        ToolMessage(
            "on its way", id=f"on-{task_id}", tool_call_id=task_id, additional_kwargs={STARTED: True}
        ),
        ToolMessage("a b", id=f"ls-{task_id}", tool_call_id=f"{task_id}-ls"),
    ]


def test_starts_of_tasks_that_work_stay_and_a_note_of_the_house_is_no_question() -> None:
    older = [HumanMessage("before", id="h0"), *started("left"), AIMessage("never mind", id="f0")]
    news = HumanMessage("it ended", id="n", additional_kwargs={NOTE: True, REPORTED: ["done"]})
    messages = [*older, HumanMessage("go", id="h1"), *started("done"), *started("open"), news, *turn(2)[1:]]

    parted = split(messages, ContextSize(type="messages", value=1))

    assert ids(parted.kept) == ["h1", "start-open", "on-open", "ls-open", "f2"]


def test_nothing_breaks_on_empty_or_odd_conversations() -> None:
    keep = ContextSize(type="messages", value=2)

    assert split([], keep).kept == []
    assert ids(split([AIMessage("hi", id="a")], keep).kept) == ["a"]
    assert ids(split([ToolMessage("x", id="t", tool_call_id="?")], keep).kept) == ["t"]


def test_old_long_results_shrink_to_a_line_and_stay_in_place() -> None:
    messages = [*turn(1, size=5000), *turn(2, size=300), *turn(3, size=5000)]

    dropped = stale_results(messages, {"h3", "a3-0", "t3-0", "f3"})
    seen = without_results(messages, set(dropped))

    assert dropped == ["t1-0"]
    assert ids(seen) == ids(messages)
    assert "5000 characters" in seen[2].text
    assert len(seen[2].text) < 400
    assert messages[2].text == "r" * 5000


def test_clipping_takes_from_the_longest_until_it_fits() -> None:
    messages = [HumanMessage("short"), HumanMessage("one two " * 12_000), HumanMessage("y" * 5000)]

    seen = clipped(messages, 4000)

    assert measure(seen) <= 4000
    assert seen[0].text == "short"
    assert "characters left out" in seen[1].text
    assert seen[2].text == "y" * 5000


def test_clipping_is_not_held_up_by_what_cannot_be_cut() -> None:
    call = {"name": "write_file", "args": {"content": "one two " * 8000}, "id": "c"}
    messages = [HumanMessage("one two " * 4000), AIMessage("", tool_calls=[call])]

    seen = clipped(messages, 100)

    assert "characters left out" in seen[0].text
    assert seen[1] == messages[1]


def test_clipping_gives_up_rather_than_leave_nothing() -> None:
    assert clipped([HumanMessage("hello")], 1)[0].text == "hello"


def test_skills_and_delegations_outlive_their_messages() -> None:
    calls = [
        {"name": "read_file", "args": {"path": "/mnt/skills/public/report/SKILL.md"}, "id": "1"},
        {"name": "read_file", "args": {"path": "/mnt/user-data/a.txt"}, "id": "2"},
        {"name": "task", "args": {"description": "look it up", "prompt": "…"}, "id": "3"},
    ]
    removed: list[AnyMessage] = [
        AIMessage("", tool_calls=calls),
        ToolMessage("It is\n42.", tool_call_id="3", name="task"),
    ]
    state: Any = {"messages": [], "skill_context": ["/mnt/skills/public/old/SKILL.md"]}

    update = durable_state(removed, state, readers=["read_file"])

    assert update["skill_context"] == [
        "/mnt/skills/public/old/SKILL.md",
        "/mnt/skills/public/report/SKILL.md",
    ]
    assert update["delegations"] == [{"description": "look it up", "result": "It is 42."}]
    again = durable_state(removed * 60, {**state, **update}, readers=["read_file"])
    assert (len(again["skill_context"]), len(again["delegations"])) == (2, 50)
    moved = durable_state(removed, state, readers=["read_file"], skills_path="/mnt/user-data")
    assert moved["skill_context"] == ["/mnt/skills/public/old/SKILL.md", "/mnt/user-data/a.txt"]


def test_the_summary_is_told_with_all_that_is_still_needed() -> None:
    state = {
        "summary_text": "They want a report.",
        "uploaded_files": [
            {"path": "/mnt/user-data/uploads/a.md", "message_id": "gone", "filename": "a.md", "size": 1},
            {"path": "/mnt/user-data/uploads/b.md", "message_id": "here", "filename": "b.md", "size": 1},
        ],
        "skill_context": ["/mnt/skills/x/SKILL.md"],
        "delegations": [{"description": "part 1", "result": "found"}],
        "todos": [{"content": "write", "status": "in_progress"}],
    }

    news = summary_message(state, {"here"})

    assert news is not None
    for words in (
        "They want a report.",
        "uploads/a.md",
        "x/SKILL.md",
        "part 1: found",
        "[in_progress] write",
    ):
        assert words in news.text
    assert "b.md" not in news.text
    assert summary_message({}, set()) is None


def test_a_transcript_keeps_the_newest_and_a_summary_of_own_words_its_questions() -> None:
    messages = [message for number in range(200) for message in turn(number)]

    shown = transcript(messages, 2000)
    own = extract("- Earlier: x", messages, 2000)

    assert measure_text(shown) <= 2100
    assert shown.startswith("[older messages left out]")
    assert "answer 199" in shown
    assert measure_text(own) <= 2000
    assert "question 199" in own
    assert "question 3\n" in transcript(messages[:20], None)


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox jumps over the lazy dog. " * 50,
        "请比较这三种数据库的性能，然后写一份报告。" * 50,
        "def f(x):\n    return {'a': [1, 2, 3], 'b': x ** 2}\n" * 50,
        '{"id": 17, "name": "x", "tags": ["a", "b"]}\n' * 50,
        "🦌🌊 emoji and words " * 50,
    ],
)
def test_estimates_are_not_below_real_counts(text: str) -> None:
    message = HumanMessage(text)
    real = TokenCounter().count_now([message])

    assert encoder() is not None, "bpe-openai is part of what tests need"
    assert real <= estimate([message]) <= real * 5


def test_hostile_texts_are_counted_too() -> None:
    message = HumanMessage(
        ["\ud800 half a pair <|endoftext|>", {"type": "image_url", "image_url": {"url": "x"}}]
    )

    assert TokenCounter().count_now([message]) > 1000
    assert estimate([message]) > 1000
