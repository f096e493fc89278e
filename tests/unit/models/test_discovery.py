"""With no `models:` section, usable models are found."""

import asyncio
from collections.abc import Sequence

import pytest
from support.model_server import ScriptedModel, text
from support.provider_server import ANSWER, provider_server

from deerflow.config import ModelSettings
from deerflow.models import ModelFactory, discover
from deerflow.models.discovery import OFFLINE, probe_local
from deerflow.models.providers import PROVIDERS, LocalServer, Provider


async def nothing(servers: Sequence[LocalServer]) -> list[ModelSettings]:
    return []


def extras(model: ModelSettings) -> dict[str, object]:
    return dict(model.model_extra or {})


async def test_a_key_gives_a_model() -> None:
    found = await discover({"DEEPSEEK_API_KEY": " sk-1 "}, probe=nothing)

    (model,) = found.models
    assert (model.use, model.model) == ("langchain_openai:ChatOpenAI", "deepseek-v4-flash")
    assert extras(model) == {"api_key": "sk-1", "base_url": "https://api.deepseek.com"}


async def test_every_provider_with_a_key_is_offered_and_can_be_built() -> None:
    env = {f"{provider.prefix}_API_KEY": "k" for provider in PROVIDERS}

    found = await discover(
        env, probe=nothing, is_installed=lambda package: package != "langchain_google_genai"
    )

    factory = ModelFactory(found.models, env={})
    assert len(found.models) == len(PROVIDERS) - 1
    assert factory.default_name == found.models[0].name
    for name in factory.names:
        factory.create(name)
        factory.create(name, thinking_enabled=False)


async def test_the_environment_may_name_model_and_address() -> None:
    found = await discover(
        {"OPENAI_API_KEY": "k", "OPENAI_MODEL": "my-model", "OPENAI_BASE_URL": "http://host/v1"},
        probe=nothing,
    )

    assert found.models[0].model == "my-model"
    assert extras(found.models[0])["base_url"] == "http://host/v1"


async def test_other_names_of_a_key_count() -> None:
    env = {"GEMINI_API_KEY": "g", "QWEN_API_KEY": "q", "ARK_API_KEY": "a"}

    found = await discover(env, probe=nothing, is_installed=lambda package: True)

    assert [extras(model)["api_key"] for model in found.models] == ["g", "q", "a"]


async def test_a_missing_package_is_named_with_its_install() -> None:
    env = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "o"}

    found = await discover(env, probe=nothing, is_installed=lambda package: package != "langchain_anthropic")

    assert [model.name for model in found.models] == ["gpt-5.6"]
    (note,) = found.notes
    assert note.startswith("ANTHROPIC_API_KEY is set, but Anthropic needs a package: ")
    assert note.endswith("deerflow install anthropic")


@pytest.mark.parametrize("question", ["What is the capital of France?", "法国的首都是哪里？"])
async def test_the_offline_model_does_not_ask_for_a_key_that_is_set(question: str) -> None:
    found = await discover({"ANTHROPIC_API_KEY": "k"}, probe=nothing, is_installed=lambda package: False)

    answer = await ModelFactory(found.models, env={}).create().ainvoke(question)

    assert found.models[0].use == OFFLINE.use
    assert "deerflow install anthropic" in answer.text
    assert "ANTHROPIC_API_KEY is set" in answer.text or "已设置 ANTHROPIC_API_KEY" in answer.text
    assert "OPENAI_API_KEY" not in answer.text


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.label)
async def test_a_key_is_all_that_a_provider_needs(provider: Provider) -> None:
    async with provider_server() as server:
        env = {f"{provider.prefix}_API_KEY": "the-key", f"{provider.prefix}_BASE_URL": server.url}
        found = await discover(env, probe=nothing)
        factory = ModelFactory(found.models, env=env)
        answer = "".join([chunk.text async for chunk in factory.create().astream("hi")])
        await factory.aclose()

    assert found.notes == ()
    assert answer == ANSWER
    assert "the-key" in server.asked[0].head


async def test_empty_keys_do_not_count_and_the_offline_model_remains() -> None:
    found = await discover({"OPENAI_API_KEY": "  ", "PATH": "/bin"}, probe=nothing)

    assert found.models == (OFFLINE,)
    assert "OPENAI_API_KEY" in found.notes[0]


async def test_a_key_keeps_local_servers_from_being_asked() -> None:
    async def asked(servers: Sequence[LocalServer]) -> list[ModelSettings]:
        raise AssertionError("nobody needs to know")

    await discover({"OPENAI_API_KEY": "k"}, probe=asked)


async def test_local_servers_are_asked_for_their_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deerflow.models.discovery.PROBE_SECONDS", 20)  # the machine may be busy
    with (
        ScriptedModel(models=["llama:8b", "nomic-embed-text"]) as ollama,
        ScriptedModel(models=["qwen", "llama:8b"]) as vllm,
    ):
        vllm.will_say(text("I am local"))
        servers = [
            LocalServer("Ollama", f"http://127.0.0.1:{ollama.port}", "/api/tags"),
            LocalServer("Nobody", "http://127.0.0.1:9"),
            LocalServer("vLLM", f"http://127.0.0.1:{vllm.port}"),
        ]

        found = await discover({}, probe=lambda _: probe_local(servers))
        factory = ModelFactory(found.models, env={})
        answer = await factory.create("qwen").ainvoke("hi")
        await factory.aclose()

    assert [model.name for model in found.models] == ["llama:8b", "qwen"]
    assert found.models[0].display_name == "llama:8b (Ollama)"
    assert answer.text == "I am local"


async def test_servers_that_are_silent_or_talk_nonsense_are_passed_over() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"data": "me"}')
        writer.close()

    silent = await asyncio.start_server(hang, "127.0.0.1", 0)
    nonsense = await asyncio.start_server(babble, "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1] for server in (silent, nonsense)]

    async with asyncio.timeout(30):
        found = await probe_local([LocalServer("x", f"http://127.0.0.1:{port}") for port in ports])

    for server in (silent, nonsense):
        server.close()
    assert found == []
