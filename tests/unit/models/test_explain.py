"""A model's failure is told in words that help."""

from typing import Any

import openai
import pytest
from support.model_server import Reply, ScriptedModel, cut, disconnect, silence, status

from deerflow.errors import ModelError
from deerflow.models import explain
from deerflow.models.compatible import CompatibleChatOpenAI
from deerflow.models.pool import SessionPool


@pytest.mark.parametrize("transport", ["lean", "sdk"])
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (status(401), "check `api_key`"),
        (status(403), "may not use this model"),
        (status(404), "does not know this model"),
        (status(400, message="bad tool"), "refused the request. (400: bad tool)"),
        (status(400, message="context_length_exceeded"), "start a new thread"),
        (status(422), "did not answer"),
        (status(429), "fallbacks"),
        (status(429, error_code="insufficient_quota"), "billing settings"),
        (status(402, message="Insufficient Balance"), "(402: Insufficient Balance)"),
        (status(500), "problem of its own"),
        (disconnect(), "could not be reached"),
        (silence(), "in time"),
    ],
)
async def test_each_failure_has_its_advice(
    model: ScriptedModel,
    pool: SessionPool,
    sdk_clients: dict[str, Any],
    transport: Any,
    reply: Reply,
    words: str,
) -> None:
    model.will_say(reply)
    chat = CompatibleChatOpenAI(
        model="m",
        api_key="k",
        base_url=model.base_url,
        transport=transport,
        pool=pool,
        timeout=0.5 if words == "in time" else 30,
        max_retries=0,
        **sdk_clients,
    )

    with pytest.raises(openai.APIError) as caught:
        await chat.ainvoke("hi")

    explained = explain(caught.value)
    assert isinstance(explained, ModelError)
    assert words in str(explained)


async def test_an_answer_that_broke_off_is_not_called_unreachable(
    model: ScriptedModel, pool: SessionPool
) -> None:
    model.will_say(cut("The answer begins well and then", after=3))
    chat = CompatibleChatOpenAI(
        model="m", api_key="k", base_url=model.base_url, transport="lean", pool=pool, max_retries=0
    )

    with pytest.raises(openai.APIError) as caught:
        [chunk async for chunk in chat.astream("hi")]

    explained = explain(caught.value)
    assert explained is not None
    assert str(explained).startswith("The model's answer broke off")
    assert str(explained).endswith("(the connection was cut: the answer broke off)")


def test_other_errors_are_not_explained_and_long_ones_are_cut() -> None:
    class TimeoutError_(Exception):  # noqa: N801, N818
        __module__ = "openai._exceptions"

    assert explain(ValueError("x")) is None
    assert len(str(explain(TimeoutError_("y" * 9000)))) < 600
