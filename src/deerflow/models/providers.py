"""What DeerFlow knows about providers: classes, plug-ins, keys, addresses and default models."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from deerflow.config import ModelSettings
from deerflow.config.aliases import canonical_use
from deerflow.config.memory import MemoryModelSettings
from deerflow.errors import ConfigError
from deerflow.models.server_address import has_address
from deerflow.plugins import find_plugin

COMPATIBLE = "deerflow.models.compatible:CompatibleChatOpenAI"
PLUGINS = "deerflow.models"
"""Entry-point group of model classes, DeerFlow's own included."""
REPLACED = {
    "langchain_openai:ChatOpenAI": COMPATIBLE,
    "langchain_openai.chat_models:ChatOpenAI": COMPATIBLE,
    "langchain_openai.chat_models.base:ChatOpenAI": COMPATIBLE,
}
"""Our subclass behaves like the class and also keeps what compatible servers send in addition to the text."""


def class_path(use: str) -> str:
    """Return the `module:Class` that `use` stands for: that of a plug-in, of an older path, or itself."""
    use = canonical_use(use)
    if ":" not in use:
        use = find_plugin(PLUGINS, use).entry_point.value
    return REPLACED.get(use, use)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassDefaults:
    """What an entry of `models:` with a certain class gets if it does not set it."""

    key_variables: tuple[str, ...] = ()
    """Environment variables with the provider's key."""
    address: str | None = None
    address_variables: tuple[str, ...] = ()
    """Environment variables with the provider's address."""
    needs_address: bool = False
    """Whether it is for self-hosted servers, which have no default address."""
    arguments: Mapping[str, Any] = field(default_factory=dict)


_ANTHROPIC = ClassDefaults(
    key_variables=("ANTHROPIC_API_KEY",), address_variables=("ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL")
)
CLASS_DEFAULTS: Mapping[str, ClassDefaults] = {
    "deerflow.models.patched_deepseek": ClassDefaults(
        key_variables=("DEEPSEEK_API_KEY",), address="https://api.deepseek.com"
    ),
    "deerflow.models.patched_minimax": ClassDefaults(
        key_variables=("MINIMAX_API_KEY",),
        address="https://api.minimax.io/v1",
        arguments={"reasoning_key": "reasoning_details", "extra_body": {"reasoning_split": True}},
    ),
    "deerflow.models.patched_stepfun": ClassDefaults(
        key_variables=("STEPFUN_API_KEY",),
        address="https://api.stepfun.com/v1",
        arguments={"reasoning_key": "reasoning"},
    ),
    "deerflow.models.patched_mimo": ClassDefaults(
        key_variables=("MIMO_API_KEY",), address="https://api.xiaomimimo.com/v1"
    ),
    "deerflow.models.vllm_provider": ClassDefaults(key_variables=("VLLM_API_KEY",), needs_address=True),
    "deerflow.models.mindie_provider": ClassDefaults(key_variables=("MINDIE_API_KEY",), needs_address=True),
    "deerflow.models.claude_provider": _ANTHROPIC,
    "langchain_anthropic": _ANTHROPIC,
    "langchain_deepseek": ClassDefaults(
        key_variables=("DEEPSEEK_API_KEY",), address_variables=("DEEPSEEK_API_BASE", "DEEPSEEK_BASE_URL")
    ),
    "langchain_google_genai": ClassDefaults(
        key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        address_variables=("GOOGLE_GEMINI_BASE_URL",),
        # The SDK would retry five times, for half a minute unseen, even when a quota is used up.
        arguments={"max_retries": 1},
    ),
    "langchain_openai:AzureChatOpenAI": ClassDefaults(
        key_variables=("AZURE_OPENAI_API_KEY",), address_variables=("AZURE_OPENAI_ENDPOINT",)
    ),
}
"""By module, or by class; the modules of DeerFlow 2 stand for classes with one provider built in."""
OPENAI_DEFAULTS = ClassDefaults(
    key_variables=("OPENAI_API_KEY",), address_variables=("OPENAI_API_BASE", "OPENAI_BASE_URL")
)


def class_defaults(use: str, *, is_openai: bool) -> ClassDefaults:
    """Return the defaults of an entry's `use`; a class that reads OpenAI's variables has OpenAI's."""
    path = use.strip() if ":" in use else class_path(use)
    usual = OPENAI_DEFAULTS if is_openai else ClassDefaults()
    return CLASS_DEFAULTS.get(path, CLASS_DEFAULTS.get(path.partition(":")[0], usual))


THINKING_TYPE: Mapping[str, Any] = {
    "supports_thinking": True,
    "when_thinking_enabled": {"extra_body": {"thinking": {"type": "enabled"}}},
}
ENABLE_THINKING: Mapping[str, Any] = {
    "supports_thinking": True,
    "when_thinking_enabled": {"extra_body": {"enable_thinking": True}},
}
VISION: Mapping[str, Any] = {"supports_vision": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider: its key variables, base URL and default model.

    `{PREFIX}_MODEL` and `{PREFIX}_BASE_URL` in the environment override model and base URL.
    """

    label: str
    prefix: str
    model: str
    key_variables: tuple[str, ...] = ()
    """Variables that may hold the key in addition to `{PREFIX}_API_KEY`."""
    base_url: str | None = None
    use: str = "langchain_openai:ChatOpenAI"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the provider's entry in `models:`."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A model server on this host at its default port."""

    label: str
    url: str
    list_path: str = "/v1/models"


PROVIDERS: tuple[Provider, ...] = (
    Provider(label="OpenAI", prefix="OPENAI", model="gpt-5.6", settings=VISION),
    Provider(
        label="Anthropic",
        prefix="ANTHROPIC",
        model="claude-sonnet-5-5",
        use="langchain_anthropic:ChatAnthropic",
        settings={**VISION, "max_tokens": 16_000},
    ),
    Provider(
        label="Google",
        prefix="GOOGLE",
        model="gemini-3.6-flash",
        key_variables=("GEMINI_API_KEY",),
        use="langchain_google_genai:ChatGoogleGenerativeAI",
        settings=VISION,
    ),
    Provider(
        label="DeepSeek",
        prefix="DEEPSEEK",
        model="deepseek-v4-flash",
        base_url="https://api.deepseek.com",
        settings=THINKING_TYPE,
    ),
    Provider(
        label="Moonshot",
        prefix="MOONSHOT",
        model="kimi-k3",
        base_url="https://api.moonshot.cn/v1",
        settings={**THINKING_TYPE, **VISION},
    ),
    Provider(
        label="Qwen",
        prefix="DASHSCOPE",
        model="qwen3.6-plus",
        key_variables=("QWEN_API_KEY",),
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        settings=ENABLE_THINKING,
    ),
    Provider(
        label="Volcengine",
        prefix="VOLCENGINE",
        model="doubao-seed-1-8-251228",
        key_variables=("ARK_API_KEY", "VOLCANO_ENGINE_API_KEY"),
        base_url="https://ark.cn-beijing.volces.com/api/v3",
        settings={**THINKING_TYPE, **VISION},
    ),
    Provider(
        label="OpenRouter",
        prefix="OPENROUTER",
        model="openrouter/auto",
        base_url="https://openrouter.ai/api/v1",
    ),
    Provider(
        label="MiniMax",
        prefix="MINIMAX",
        model="MiniMax-M3",
        base_url="https://api.minimax.io/v1",
        settings={"reasoning_key": "reasoning_details", "extra_body": {"reasoning_split": True}},
    ),
    Provider(
        label="StepFun",
        prefix="STEPFUN",
        model="step-3.5-flash",
        base_url="https://api.stepfun.com/v1",
        settings={"reasoning_key": "reasoning"},
    ),
    Provider(
        label="Z.ai",
        prefix="ZAI",
        model="glm-5.2",
        key_variables=("ZHIPUAI_API_KEY",),
        base_url="https://api.z.ai/api/paas/v4",
        settings=THINKING_TYPE,
    ),
    Provider(
        label="Novita",
        prefix="NOVITA",
        model="deepseek/deepseek-v3-0324",
        base_url="https://api.novita.ai/openai/v1",
    ),
)
"""In order of preference: the first provider whose key is found supplies the default model."""

LOCAL_SERVERS: tuple[LocalServer, ...] = (
    LocalServer("Ollama", "http://127.0.0.1:11434", "/api/tags"),
    LocalServer("LM Studio", "http://127.0.0.1:1234"),
    LocalServer("vLLM", "http://127.0.0.1:8000"),
)


def memory_model(settings: MemoryModelSettings, *, name: str, key: str) -> ModelSettings:
    """Return the entry of `models:` for a memory model that is configured in short form.

    Args:
        name: The model's name in the metrics.
        key: The path of `settings` in the settings, for messages.
    """
    provider = _provider(settings.provider, key)
    default = None if has_address(settings.extra_keys) else provider.base_url
    given = {
        **settings.extra_keys,
        "base_url": settings.base_url or default,
        "api_key": settings.api_key,
        "temperature": settings.temperature,
    }
    entry = {
        "name": name,
        "use": provider.use,
        "model": settings.model or provider.model,
        **{part: value for part, value in given.items() if value is not None},
    }
    try:
        return ModelSettings.model_validate(entry)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, wrong["loc"]))
        raise ConfigError(f"{key}.{path}: {wrong['msg']}") from error


def _provider(name: str | None, key: str) -> Provider:
    """Return a provider by its name; OpenAI, and so any compatible server, if there is no name."""
    if name is None:
        return PROVIDERS[0]
    for provider in PROVIDERS:
        if name.casefold() in (provider.label.casefold(), provider.prefix.casefold()):
            return provider
    known = ", ".join(provider.label for provider in PROVIDERS)
    raise ConfigError(f"{key}.provider is '{name}'; allowed: {known}")
