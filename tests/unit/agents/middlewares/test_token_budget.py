"""What counts towards a run's budget of tokens."""

from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from deerflow.agents.middlewares.token_budget import spent_so_far
from deerflow.agents.state import Spent, ThreadState


def usage(tokens: int) -> dict[str, Any]:
    return {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}


def state(*messages: AnyMessage, spent: int = 0) -> ThreadState:
    known = Spent(run_id="r", input_tokens=spent, output_tokens=0)
    return ThreadState(messages=list(messages), tokens_spent=known)


def test_what_sub_agents_spent_since_the_last_answer_counts() -> None:
    result = ToolMessage("found", tool_call_id="c", additional_kwargs={"subagent_token_usage": usage(30)})
    earlier = ToolMessage("old", tool_call_id="b", additional_kwargs={"subagent_token_usage": usage(500)})

    found = spent_so_far(state(earlier, AIMessage("on"), result, spent=100), "r")

    assert found["input_tokens"] == 130


def test_news_of_background_tasks_and_answers_of_the_same_step_count_once() -> None:
    question = HumanMessage("go", id="q")
    answer = AIMessage("not the end", id="a", usage_metadata=usage(7))  # type: ignore[arg-type]
    news = HumanMessage("ended", id="n", additional_kwargs={"subagent_token_usage": usage(40)})
    request: list[AnyMessage] = [HumanMessage("today is"), question, answer, news]

    during = spent_so_far(state(question, spent=100), "r", request)
    after = spent_so_far(state(question, answer, news, spent=147), "r", request)

    assert during["input_tokens"] == after["input_tokens"] == 147


def test_another_runs_count_is_not_carried_on() -> None:
    assert spent_so_far(state(HumanMessage("go"), spent=100), "another") == Spent(
        run_id="another", input_tokens=0, output_tokens=0
    )
