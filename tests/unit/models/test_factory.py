"""From entries of `models:` to chat models."""

import ssl
import subprocess
import sys
import threading
from functools import cached_property
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from pydantic import SecretStr
from support.model_server import ScriptedModel, text

from deerflow.config import ModelSettings
from deerflow.errors import ConfigError, NotFoundError
from deerflow.models import ModelFactory
from deerflow.models.compatible import CompatibleChatOpenAI
from deerflow.models.pool import SessionPool

OPENAI = "langchain_openai:ChatOpenAI"


def entry(name: str = "m", **more: Any) -> ModelSettings:
    given = {"name": name, "use": OPENAI, "model": f"provider/{name}", "api_key": "k"}
    return ModelSettings.model_validate({**given, **more})


def made(settings: ModelSettings, env: dict[str, str] | None = None, **options: Any) -> CompatibleChatOpenAI:
    chat = ModelFactory([settings], env=env or {}).create(**options)
    assert isinstance(chat, CompatibleChatOpenAI)
    return chat


def payload(chat: CompatibleChatOpenAI) -> dict[str, Any]:
    return chat._get_request_payload([HumanMessage("hi")])


def test_the_first_model_is_the_default_and_names_keep_their_order() -> None:
    factory = ModelFactory([entry("a"), entry("b")], env={})

    assert factory.names == ("a", "b")
    assert factory.default_name == "a"
    assert factory.create() is factory.create("a")
    assert factory.get("b").model == "provider/b"


def test_an_unknown_name_lists_the_known_ones() -> None:
    factory = ModelFactory([entry("a"), entry("b")], env={})

    with pytest.raises(NotFoundError, match=r"model 'c' not found; there are: a, b"):
        factory.get("c")
    with pytest.raises(NotFoundError):
        factory.create("c")


def test_without_models_the_error_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="add an entry"):
        ModelFactory([], env={}).create()


def test_models_are_built_once_per_options() -> None:
    factory = ModelFactory([entry(supports_thinking=True, supports_reasoning_effort=True)], env={})

    assert factory.create(thinking_enabled=True) is factory.create()
    assert factory.create(thinking_enabled=False) is not factory.create()
    assert factory.create(reasoning_effort="high") is not factory.create()


def test_options_that_a_model_does_not_support_build_no_second_one() -> None:
    factory = ModelFactory([entry()], env={})

    assert factory.create(thinking_enabled=False, reasoning_effort="high") is factory.create()


def test_further_keys_reach_the_class() -> None:
    chat = made(
        entry(temperature=0.2, max_tokens=7, api_base="http://host/v1", request_timeout=9.0, max_retries=5)
    )

    assert (chat.temperature, chat.max_tokens, chat.openai_api_base) == (0.2, 7, "http://host/v1")
    assert (chat.request_timeout, chat.max_retries) == (9.0, 5)
    assert chat.stream_usage is True


def test_usage_can_be_switched_off() -> None:
    assert made(entry(stream_usage=False)).stream_usage is False


def test_unknown_keys_are_named_with_a_guess() -> None:
    with pytest.raises(
        ConfigError, match=r"models\[m\]: .* does not know temprature \(did you mean temperature\?\)"
    ):
        made(entry(temprature=1))


def test_a_wrong_value_is_named_without_showing_the_key() -> None:
    with pytest.raises(ConfigError, match=r"models\[m\]: temperature") as caught:
        made(entry(temperature="hot", api_key="very-secret"))

    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("langchain_nowhere:Chat", "langchain_nowhere"),
        ("langchain_openai:Nothing", "Nothing"),
        ("json:loads", "not a LangChain chat model"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_class_that_is_not_there_is_named(use: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ModelFactory([entry(use=use)], env={}).create()


def test_a_missing_key_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(ConfigError, match=r"models\[m\].*api_key"):
        made(entry(api_key=None))


def test_blanks_around_a_key_do_no_harm() -> None:
    given = made(entry(api_key=" sk-1\n")).openai_api_key
    found = made(entry(api_key=None), {"OPENAI_API_KEY": "sk-2\r\n"}).openai_api_key

    assert [key.get_secret_value() for key in (given, found) if isinstance(key, SecretStr)] == [
        "sk-1",
        "sk-2",
    ]


@pytest.mark.parametrize("key", ["你的密钥", "sk-1\nX-Other: 2", "sk-\u200b1", "sk\x00"])
def test_what_can_be_no_key_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError, match=r"models\[m\].api_key is no key") as refused:
        made(entry(api_key=key))

    assert key not in str(refused.value)


def test_keys_are_found_in_the_environment() -> None:
    chat = made(entry(api_key=None), env={"OPENAI_API_KEY": "from-env"})
    claude = ModelFactory(
        [entry(use="langchain_anthropic:ChatAnthropic", api_key=None)], env={"ANTHROPIC_API_KEY": "from-env"}
    ).create()

    assert chat.root_async_client.api_key == "from-env"
    assert isinstance(claude, ChatAnthropic)
    assert claude.anthropic_api_key.get_secret_value() == "from-env"


def test_a_local_server_needs_no_key() -> None:
    assert made(entry(api_key=None, base_url="http://127.0.0.1:8000/v1")).root_async_client.api_key


def test_entries_of_deerflow_2_keep_their_provider() -> None:
    chat = made(
        entry(use="deerflow.models.patched_deepseek:PatchedChatDeepSeek", api_key=None),
        env={"DEEPSEEK_API_KEY": "deep", "OPENAI_API_KEY": "open"},
    )

    assert chat.openai_api_base == "https://api.deepseek.com"
    assert chat.root_async_client.api_key == "deep"


@pytest.mark.parametrize(
    ("given", "is_on", "expected"),
    [
        ({"when_thinking_enabled": {"extra_body": {"thinking": {"type": "enabled"}}}}, True, "enabled"),
        ({"when_thinking_enabled": {"extra_body": {"thinking": {"type": "enabled"}}}}, False, "disabled"),
        ({"thinking": {"type": "enabled"}}, True, "enabled"),
        ({"thinking": {"type": "enabled"}}, False, "disabled"),
        (
            {
                "when_thinking_enabled": {"extra_body": {"thinking": {"type": "enabled"}}},
                "when_thinking_disabled": {"extra_body": {"thinking": {"type": "auto"}}},
            },
            False,
            "auto",
        ),
    ],
)
def test_thinking_is_switched_as_the_entry_says(given: dict[str, Any], is_on: bool, expected: str) -> None:
    chat = made(entry(supports_thinking=True, extra_body={"kept": 1}, **given), thinking_enabled=is_on)

    body = payload(chat)["extra_body"]
    assert body == {"kept": 1, "thinking": {"type": expected}}


def test_other_switches_are_known_too() -> None:
    qwen = entry(supports_thinking=True, when_thinking_enabled={"extra_body": {"enable_thinking": True}})
    vllm = entry(
        supports_thinking=True,
        when_thinking_enabled={"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
    )

    assert payload(made(qwen, thinking_enabled=False))["extra_body"] == {"enable_thinking": False}
    off = payload(made(vllm, thinking_enabled=False))["extra_body"]
    assert off == {"chat_template_kwargs": {"enable_thinking": False}}


def test_a_model_that_cannot_think_is_not_asked_to() -> None:
    settings = entry(when_thinking_enabled={"extra_body": {"thinking": {"type": "enabled"}}})

    assert payload(made(settings))["extra_body"] == {"thinking": {"type": "disabled"}}


def test_effort_reaches_only_models_that_take_it() -> None:
    able = made(entry(supports_reasoning_effort=True), reasoning_effort="high")
    unable = made(entry(reasoning_effort="low"), reasoning_effort="high")

    assert able.reasoning_effort == "high"
    assert unable.reasoning_effort is None


def test_the_context_window_is_part_of_the_profile() -> None:
    chat = made(entry(context_window=1234))

    assert chat.profile is not None
    assert chat.profile["max_input_tokens"] == 1234


def test_two_entries_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="names must differ"):
        ModelFactory([entry("a"), entry("a")], env={})


@pytest.mark.parametrize("transport", ["lean", "sdk"])
async def test_a_built_model_answers_until_the_factory_closes(model: ScriptedModel, transport: str) -> None:
    model.will_say(text("yes"))
    factory = ModelFactory([entry(base_url=model.base_url, transport=transport)], env={})

    answer = await factory.create().ainvoke("hi")
    await factory.aclose()

    assert answer.text == "yes"
    assert answer.usage_metadata is not None
    assert model.requests[0].body["model"] == "provider/m"
    await model.until(lambda m: m.open_connections == 0)


async def test_loading_prepares_connections_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates take long to read: the thread that loads the package reads them."""
    threads: list[threading.Thread] = []

    class Recording(SessionPool):
        @cached_property
        def tls(self) -> ssl.SSLContext:
            threads.append(threading.current_thread())
            return super().tls

    monkeypatch.setattr("deerflow.models.factory.SessionPool", Recording)
    models = ModelFactory([entry()], env={})

    await models.load()
    models.create()
    await models.aclose()

    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


def test_importing_the_models_imports_no_provider() -> None:
    code = (
        "import sys, deerflow.models, deerflow.cli.install; "
        "print([m for m in ('anthropic', 'google.genai', 'langchain_openai', 'openai', 'langchain_anthropic',"
        " 'langchain_google_genai', 'langchain_ollama', 'ollama', 'langchain_deepseek') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("given", "tries"), [({}, 1), ({"max_retries": 4}, 4), ({"retries": 5}, 5)])
def test_googles_sdk_makes_no_tries_that_nobody_sees_unless_it_is_told_to(
    given: dict[str, Any], tries: int
) -> None:
    google = entry(use="langchain_google_genai:ChatGoogleGenerativeAI", **given)

    chat: Any = ModelFactory([google], env={}).create()

    assert chat.max_retries == tries
