"""The providers recognized by their API key variables, and the local model servers that are probed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

THINKING_TYPE: Mapping[str, Any] = {
    "supports_thinking": True,
    "when_thinking_enabled": {"extra_body": {"thinking": {"type": "enabled"}}},
}
ENABLE_THINKING: Mapping[str, Any] = {
    "supports_thinking": True,
    "when_thinking_enabled": {"extra_body": {"enable_thinking": True}},
}
SEES: Mapping[str, Any] = {"supports_vision": True}


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
    Provider(label="OpenAI", prefix="OPENAI", model="gpt-5.6", settings=SEES),
    Provider(
        label="Anthropic",
        prefix="ANTHROPIC",
        model="claude-sonnet-5-5",
        use="langchain_anthropic:ChatAnthropic",
        settings={**SEES, "max_tokens": 16_000},
    ),
    Provider(
        label="Google",
        prefix="GOOGLE",
        model="gemini-3.6-flash",
        key_variables=("GEMINI_API_KEY",),
        use="langchain_google_genai:ChatGoogleGenerativeAI",
        settings=SEES,
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
        settings={**THINKING_TYPE, **SEES},
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
        settings={**THINKING_TYPE, **SEES},
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
