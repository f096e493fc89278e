"""The lead agent with the class of each common provider, over HTTP to a server that speaks its protocol."""

import json
from pathlib import Path

import pytest
from support.lead import Lead
from support.model_server import ScriptedModel
from support.provider_server import ANSWER, provider_server

from deerflow.config import ModelSettings
from deerflow.models import ModelFactory

USES = (
    "langchain_openai:ChatOpenAI",
    "langchain_anthropic:ChatAnthropic",
    "langchain_google_genai:ChatGoogleGenerativeAI",
    "langchain_deepseek:ChatDeepSeek",
    "langchain_ollama:ChatOllama",
)


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("use", USES)
async def test_the_tools_are_offered_and_the_answer_is_streamed_before_its_end(
    tmp_path: Path, model: ScriptedModel, use: str
) -> None:
    key = {} if "ollama" in use else {"api_key": "k"}
    async with provider_server() as server:
        entry = {"name": "m", "model": "m", "use": use, "base_url": server.url, **key}
        models = ModelFactory([ModelSettings.model_validate(entry)], env={})
        lead = Lead(model, tmp_path, models=models)
        question = {"messages": [{"type": "human", "content": "Where are you?"}]}
        shown = [
            chunk
            async for chunk, _ in lead.agent.astream(
                question, lead.config, context=lead.context, stream_mode="messages"
            )
        ]
        await models.aclose()

    assert "".join(chunk.text for chunk in shown) == ANSWER
    ends = [chunk for chunk in shown if chunk.response_metadata.keys() & {"finish_reason", "stop_reason"}]
    assert all(not chunk.text for chunk in ends)
    (asked,) = server.asked
    assert "read_file" in json.dumps(json.loads(asked.body)["tools"])
