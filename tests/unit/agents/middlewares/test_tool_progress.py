"""Results that resemble each other: when an agent is warned so, and when not."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from deerflow.agents.middlewares.loop_guard import assess
from deerflow.config.tools import ToolProgressSettings

PAGE = "deer live in forests and eat leaves grass bark and young shoots all year round"
OTHER = "quantum chromodynamics describes how quarks and gluons interact through colour charges in nuclei"


def turn(*results: str, tool: str = "web_search") -> list[AnyMessage]:
    messages: list[AnyMessage] = [HumanMessage("go")]
    for number, result in enumerate(results):
        call = {"name": tool, "args": {"query": str(number)}, "id": f"c{number}"}
        messages += [
            AIMessage("", tool_calls=[call]),
            ToolMessage(result, tool_call_id=f"c{number}", name=tool),
        ]
    return messages


def settings(**changes: Any) -> ToolProgressSettings:
    return ToolProgressSettings(enabled=True, **changes)


def test_similar_results_in_a_row_are_noticed_and_the_warning_grows() -> None:
    found = [assess(turn(*[f"{PAGE} {n}" for n in range(count)]), settings()) for count in range(1, 7)]

    assert [each and (each.count, each.is_last_warning) for each in found] == [
        None,
        None,
        (3, False),
        (4, False),
        (5, True),
        (6, True),
    ]
    assert found[2] is not None
    assert "web_search" in found[2].text


def test_results_in_chinese_are_compared_too() -> None:
    page = "鹿生活在森林里，以树叶、青草和嫩芽为食，冬天也吃树皮"
    other = "量子色动力学描述夸克与胶子怎样通过色荷相互作用"

    alike = assess(turn(*[f"{page}，第{n}页" for n in range(3)]), settings())

    assert alike is not None
    assert alike.count == 3
    assert assess(turn(page, page, other), settings()) is None


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [HumanMessage("go")],
        turn(PAGE, PAGE, OTHER),
        turn(PAGE, OTHER, PAGE),
        turn("ok", "ok", "ok"),
        turn(*[PAGE] * 3, tool="write_file"),
        turn(*[PAGE] * 3, tool="poll_job"),
        [*turn(*[PAGE] * 3), AIMessage("Done.")],
        [*turn(*[PAGE] * 3), AIMessage("Done."), HumanMessage("again"), *turn(PAGE)[1:]],
    ],
)
def test_headway_short_results_writers_exempt_tools_and_new_turns_pass(messages: list[AnyMessage]) -> None:
    assert assess(messages, settings(exempt_tools=("poll_job",))) is None


def test_only_results_of_the_same_tool_are_compared() -> None:
    mixed = [*turn(PAGE, PAGE), *turn(OTHER, tool="read_file")[1:], *turn(PAGE)[1:]]

    found = assess(mixed, settings())

    assert found is not None
    assert (found.tool, found.count) == ("web_search", 3)


def test_the_threshold_says_how_alike_results_must_be() -> None:
    alike = turn(PAGE, f"{PAGE} {OTHER}", PAGE)

    assert assess(alike, settings()) is None
    assert assess(alike, settings(jaccard_similarity_threshold=0.3)) is not None


def test_results_of_any_shape_are_taken() -> None:
    blocks = ToolMessage(
        [{"type": "text", "text": PAGE}, {"type": "image"}], tool_call_id="x", name="web_search"
    )

    assert assess([*turn(PAGE, PAGE), blocks], settings()) is not None
    assert assess(turn(*["x y z " * 100_000] * 3), settings(min_word_count_for_similarity=0)) is not None
