"""The offline model as LangChain sees it: standard suite, streaming, usage, stop words."""

import ast
import asyncio
import sys
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_tests.unit_tests import ChatModelUnitTests

from deerflow.models import can_reason, offline
from deerflow.models.offline import OfflineChatModel

FILES = "<uploaded_files>\n- /mnt/user-data/uploads/a.md (1.0 KB)\n</uploaded_files>\n\n"


class TestStandard(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return OfflineChatModel

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "offline"}

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "another"


def tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


def test_without_files_it_says_what_it_is_and_how_to_connect_a_model() -> None:
    answer = OfflineChatModel().invoke("What is the capital of France?")

    assert "offline model" in answer.text
    assert all(word in answer.text for word in ("OPENAI_API_KEY", "Ollama", "config.yaml", "deerflow doctor"))


def test_a_chinese_question_gets_a_chinese_introduction() -> None:
    answer = OfflineChatModel().invoke("法国的首都是哪里？")

    assert "离线模型" in answer.text
    assert "OPENAI_API_KEY" in answer.text


async def test_text_streams_word_by_word_and_adds_up_to_the_whole() -> None:
    model = OfflineChatModel()
    chunks = [chunk async for chunk in model.astream("Hello")]

    assert len(chunks) > 50
    assert "".join(chunk.text for chunk in chunks) == model.invoke("Hello").text


async def test_chinese_text_streams_character_by_character() -> None:
    chunks = [chunk.text async for chunk in OfflineChatModel().astream("你好")]

    assert sum(len(text) == 1 for text in chunks) > 100


async def test_tool_calls_stream_in_pieces_and_add_up_to_the_call() -> None:
    model = OfflineChatModel().bind_tools([tool("search_files")])
    whole: AIMessageChunk | None = None
    pieces = 0
    async for chunk in model.astream([HumanMessage(FILES + "What does it say about cost?")]):
        assert isinstance(chunk, AIMessageChunk)
        pieces += bool(chunk.tool_call_chunks)
        whole = chunk if whole is None else whole + chunk

    assert whole is not None
    assert pieces > 1
    assert [call["name"] for call in whole.tool_calls] == ["search_files"]
    assert whole.tool_calls[0]["args"]["paths"] == ["/mnt/user-data/uploads/a.md"]
    assert (
        whole.tool_calls
        == (await model.ainvoke([HumanMessage(FILES + "What does it say about cost?")])).tool_calls
    )


async def test_usage_is_reported_once_whether_streamed_or_not() -> None:
    model = OfflineChatModel()
    streamed = [chunk.usage_metadata async for chunk in model.astream("Hello") if chunk.usage_metadata]
    usage = model.invoke("Hello").usage_metadata

    assert streamed == [usage]
    assert usage is not None
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 100


def test_a_stop_word_ends_the_answer() -> None:
    answer = OfflineChatModel().invoke("Hello", stop=["offline", "rules"])

    assert answer.text == "I am DeerFlow's built-in "


def test_it_can_be_called_without_any_user_message() -> None:
    assert OfflineChatModel().invoke([]).text


async def test_many_runs_share_one_instance_without_mixing() -> None:
    model = OfflineChatModel().bind_tools([tool("search_files")])
    questions = [FILES.replace("a.md", f"{number}.md") + "What about cost?" for number in range(40)]

    answers = await asyncio.gather(*(model.ainvoke(question) for question in questions))

    paths = [answer.tool_calls[0]["args"]["paths"][0] for answer in answers]
    assert paths == [f"/mnt/user-data/uploads/{number}.md" for number in range(40)]


def test_it_cannot_reason() -> None:
    assert not can_reason(OfflineChatModel())


def test_it_imports_nothing_heavier_than_langchain_core() -> None:
    allowed = {
        "deerflow.models.offline",
        "deerflow.retrieval",
        "langchain_core",
        "pydantic",
        "typing_extensions",
    }
    folder = Path(offline.__file__).parent
    used = {
        node.module
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    }

    foreign = {module for module in used if module.split(".")[0] not in sys.stdlib_module_names}

    assert [module for module in foreign if not module.startswith(tuple(allowed))] == []
