"""Tokens, messages, the title and open questions are counted while a run goes by."""

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from deerflow.runtime.run_stats import RunStats


def answer(spent_in: int, spent_out: int) -> AIMessage:
    total = spent_in + spent_out
    return AIMessage(
        "x", usage_metadata={"input_tokens": spent_in, "output_tokens": spent_out, "total_tokens": total}
    )


def test_tokens_are_added_up_by_who_spent_them() -> None:
    tally = RunStats()
    by_subagent = {"subagent_token_usage": {"input_tokens": 100, "output_tokens": None}}

    tally.add({"model": {"messages": [answer(10, 2)]}})
    tally.add({"tools": {"messages": [ToolMessage("x", tool_call_id="1", additional_kwargs=by_subagent)]}})
    tally.add({"model": {"messages": answer(20, 3)}})

    use = tally.usage
    assert (use.input_tokens, use.output_tokens, use.total_tokens) == (130, 5, 135)
    assert (use.lead_tokens, use.subagent_tokens, use.llm_calls) == (35, 100, 2)
    assert tally.message_count == 3


def test_the_last_title_counts_and_an_interrupt_is_a_question() -> None:
    tally = RunStats()

    tally.add({"start": {"title": "first"}, "model": {"title": None}})
    tally.add({"model": {"title": "second", "messages": [HumanMessage("x")]}})
    tally.add({"__interrupt__": ("?",)})

    assert (tally.title, tally.is_waiting, tally.usage.llm_calls) == ("second", True, 0)


def test_updates_of_any_shape_are_taken() -> None:
    tally = RunStats()
    strange: list[dict[str, Any]] = [
        {},
        {"a": None},
        {"b": []},
        {"c": {"messages": None}},
        {"d": {"messages": ["x"]}},
    ]

    for update in strange:
        tally.add(update)

    assert (tally.message_count, tally.title, tally.is_waiting) == (0, None, False)
