"""Key and conversation go to the address in the entry and nowhere else, whatever the entry calls it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from support.provider_server import ANSWER, ProviderServer, provider_server

from deerflow.config import ModelSettings
from deerflow.config.aliases import ALIASES
from deerflow.config.extras import EXTRAS
from deerflow.config.memory import MemoryModelSettings
from deerflow.errors import ConfigError
from deerflow.models import ModelFactory
from deerflow.models.providers import CLASS_DEFAULTS, OPENAI_DEFAULTS, PROVIDERS, REPLACED, memory_model

AZURE = "langchain_openai:AzureChatOpenAI"
CLASSES = {
    "langchain_anthropic": "ChatAnthropic",
    "langchain_deepseek": "ChatDeepSeek",
    "langchain_google_genai": "ChatGoogleGenerativeAI",
    "langchain_ollama": "ChatOllama",
}
USES = sorted(
    {alias for alias in ALIASES if alias.startswith("deerflow.models.")}
    | set(REPLACED)
    | set(REPLACED.values())
    | {provider.use for provider in PROVIDERS}
    | {f"{package}:{CLASSES[package]}" for package in EXTRAS if package.startswith("langchain_")}
    | {AZURE}
)
NAMES = ("base_url", "api_base", "openai_api_base", "endpoint", "anthropic_api_url", "azure_endpoint")
VARIABLES = (
    "LANGSMITH_GATEWAY",
    "OLLAMA_HOST",
    *OPENAI_DEFAULTS.address_variables,
    *(name for each in CLASS_DEFAULTS.values() for name in each.address_variables),
)
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

KEY = "the-key-of-this-entry"
QUESTION = "Where are you?"


@pytest.fixture
async def servers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ProviderServer, ProviderServer]]:
    """Return the server that the entry names, and the one that every variable of the environment names."""
    async with AsyncExitStack() as stack:
        here, elsewhere = [await stack.enter_async_context(provider_server()) for _ in range(2)]
        for name in VARIABLES:
            monkeypatch.setenv(name, elsewhere.url)
        yield here, elsewhere


def env_of(server: ProviderServer) -> dict[str, str]:
    keys = {name: "another-key" for each in CLASS_DEFAULTS.values() for name in each.key_variables}
    return {**dict.fromkeys(VARIABLES, server.url), **keys, "OPENAI_API_KEY": "another-key"}


def entry(use: str, **given: Any) -> ModelSettings:
    more = {"api_version": "2026-01-01", "azure_deployment": "d"} if use == AZURE else {}
    key = {} if "ollama" in use else {"api_key": KEY}
    return ModelSettings.model_validate({"name": "m", "use": use, "model": "m", **key, **more, **given})


async def ask(settings: ModelSettings, env: dict[str, str]) -> str:
    factory = ModelFactory([settings], env=env)
    said = "".join([chunk.text async for chunk in factory.create().astream([HumanMessage(QUESTION)])])
    await factory.aclose()
    return said


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("use", USES)
async def test_an_address_in_the_entry_wins_under_each_of_its_names(
    servers: tuple[ProviderServer, ProviderServer], use: str, name: str
) -> None:
    here, elsewhere = servers

    said = await ask(entry(use, **{name: here.url}), env_of(elsewhere))

    assert said == ANSWER
    assert [QUESTION in one.body for one in here.asked] == [True]
    assert KEY in here.asked[0].head or "ollama" in use
    assert elsewhere.asked == []


@pytest.mark.parametrize("use", USES)
async def test_two_different_addresses_in_one_entry_are_refused(use: str) -> None:
    one, other = "http://127.0.0.1:2041/v1", "http://127.0.0.1:2042/v1"
    settings = entry(use, base_url=one, api_base=other)

    with pytest.raises(
        ConfigError, match=r"models\[m\] names two addresses: base_url is .*2041.* api_base is .*2042"
    ):
        ModelFactory([settings], env={}).create()


@pytest.mark.parametrize("transport", ["lean", "sdk"])
async def test_one_address_under_two_names_is_one_address(
    servers: tuple[ProviderServer, ProviderServer], transport: str
) -> None:
    here, elsewhere = servers
    settings = entry(
        "langchain_openai:ChatOpenAI", transport=transport, base_url=here.url, api_base=f"{here.url}/"
    )

    assert await ask(settings, env_of(elsewhere)) == ANSWER
    assert (len(here.asked), elsewhere.asked) == (1, [])


async def test_google_finds_its_address_in_the_older_form_too(
    servers: tuple[ProviderServer, ProviderServer],
) -> None:
    here, elsewhere = servers
    settings = entry(
        "langchain_google_genai:ChatGoogleGenerativeAI", client_options={"api_endpoint": here.url}
    )

    assert await ask(settings, env_of(elsewhere)) == ANSWER
    assert (len(here.asked), elsewhere.asked) == (1, [])


async def test_an_address_for_thinking_wins_while_the_model_thinks(
    servers: tuple[ProviderServer, ProviderServer],
) -> None:
    here, elsewhere = servers
    settings = entry(
        "deerflow.models.patched_deepseek:PatchedChatDeepSeek",
        supports_thinking=True,
        base_url=elsewhere.url,
        when_thinking_enabled={"api_base": here.url},
    )

    assert await ask(settings, {}) == ANSWER
    assert (len(here.asked), elsewhere.asked) == (1, [])


async def test_without_one_the_address_comes_from_the_environment_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    async with provider_server() as server:
        said = [
            await ask(entry("langchain_openai:ChatOpenAI"), {"OPENAI_API_BASE": server.url}),
            await ask(entry("langchain_anthropic:ChatAnthropic"), {"ANTHROPIC_BASE_URL": server.url}),
        ]

    assert said == [ANSWER, ANSWER]
    assert all(KEY in one.head for one in server.asked)


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("deerflow.models.patched_deepseek:PatchedChatDeepSeek", "https://api.deepseek.com"),
        ("deerflow.models.patched_minimax:PatchedChatMiniMax", "https://api.minimax.io/v1"),
        ("deerflow.models.patched_mimo:PatchedChatMiMo", "https://api.xiaomimimo.com/v1"),
        ("deerflow.models.patched_stepfun:PatchedChatStepFun", "https://api.stepfun.com/v1"),
    ],
)
def test_a_class_of_one_provider_goes_to_that_provider(use: str, expected: str) -> None:
    env = dict.fromkeys(VARIABLES, "http://127.0.0.1:9")

    model: Any = ModelFactory([entry(use)], env=env).create()

    assert model.openai_api_base == expected


@pytest.mark.parametrize("name", ["vllm_provider:VllmChatModel", "mindie_provider:MindIEChatModel"])
def test_a_server_of_ones_own_needs_an_address(name: str) -> None:
    with pytest.raises(ConfigError, match=r"models\[m\]: .* needs `base_url`, the address of your server"):
        ModelFactory([entry(f"deerflow.models.{name}")], env={}).create()


@pytest.mark.parametrize("address", ["", "127.0.0.1:2041/v1", "https://", 2041])
def test_what_is_no_address_is_refused(address: object) -> None:
    with pytest.raises(ConfigError, match=r"models\[m\].api_base is .* no address; .* such as http://"):
        ModelFactory([entry("langchain_openai:ChatOpenAI", api_base=address)], env={}).create()


def test_no_address_at_all_may_be_written_down() -> None:
    settings = entry("deerflow.models.patched_deepseek:PatchedChatDeepSeek", base_url=None, api_base=None)

    model: Any = ModelFactory([settings], env={}).create()

    assert model.openai_api_base == "https://api.deepseek.com"


async def test_a_key_for_openai_does_not_go_to_azure() -> None:
    async with provider_server() as server:
        env = {
            "AZURE_OPENAI_ENDPOINT": server.url,
            "AZURE_OPENAI_API_KEY": KEY,
            "OPENAI_API_KEY": "another-key",
        }
        said = await ask(entry(AZURE, api_key=None), env)

    assert said == ANSWER
    assert KEY in server.asked[0].head
    assert "another-key" not in server.asked[0].head


def test_a_model_of_the_memory_may_call_its_address_otherwise() -> None:
    settings = MemoryModelSettings.model_validate(
        {"provider": "DeepSeek", "api_base": "http://127.0.0.1:9/v1"}
    )

    made: Any = ModelFactory([memory_model(settings, name="memory", key="memory.model")], env={}).create()

    assert made.openai_api_base == "http://127.0.0.1:9/v1"
