"""Explains in English and Chinese why a model call failed and what to do about it."""

from dataclasses import dataclass

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
)

from deerflow.connection_errors import known_reason, without_objects
from deerflow.errors import ModelError
from deerflow.models.quota import is_quota_used_up

LONGEST_DETAIL = 500
PROVIDER_ERROR = "provider_error"
RATE_LIMITED = "rate_limited"


@dataclass(frozen=True, slots=True)
class Advice:
    """A kind of failure: `reason` for programs, and the message for users in two languages."""

    reason: str
    english: str
    chinese: str


ADVICE: tuple[tuple[type[Exception], Advice], ...] = (
    (
        ContextOverflowError,
        Advice(
            "overflow",
            "The conversation is longer than the model can read; start a new thread.",
            "对话超出了模型能读取的长度，请新建一个对话。",
        ),
    ),
    (
        ModelAuthenticationError,
        Advice(
            "key_refused",
            "The model's provider refused the key; check `api_key`.",
            "模型提供商拒绝了密钥，请检查 `api_key`。",
        ),
    ),
    (
        ModelPermissionDeniedError,
        Advice(
            "key_refused",
            "The key may not use this model; check the account or choose another model.",
            "该密钥无权使用此模型，请检查账户或换一个模型。",
        ),
    ),
    (
        ModelNotFoundError,
        Advice(
            "model_unknown",
            "The provider does not know this model; check `model` and `base_url`.",
            "提供商没有这个模型，请检查 `model` 和 `base_url`。",
        ),
    ),
    (
        ModelRateLimitError,
        Advice(
            RATE_LIMITED,
            "The provider takes no more calls for now; wait, or give the model `fallbacks`.",
            "提供商暂时不接受更多调用，请稍候，或为该模型配置 `fallbacks`。",
        ),
    ),
    (
        ModelTimeoutError,
        Advice(
            "timeout",
            "The model did not answer in time; try again, or raise `timeout`.",
            "模型没有及时回答，请重试，或调大 `timeout`。",
        ),
    ),
    (
        ModelConnectionError,
        Advice(
            "connection",
            "The model's server could not be reached, or hung up; check `base_url`.",
            "无法连接模型服务器，或连接被中断，请检查 `base_url`。",
        ),
    ),
    (
        ModelInvalidRequestError,
        Advice("request_refused", "The provider refused the request.", "提供商拒绝了这次请求。"),
    ),
    (
        ModelAPIError,
        Advice(
            PROVIDER_ERROR,
            "The provider has a problem of its own; try again later.",
            "提供商自身出现故障，请稍后重试。",
        ),
    ),
)
"""From the most specific class to the most general: the first match applies."""
BROKEN_ANSWER = "The model's answer is broken: "
"""Message prefix of the error for a truncated or malformed answer; providers' classes wrap that error."""
BROKEN = Advice(
    "connection",
    "The model's answer broke off or cannot be read; try again, and if it stays so check `base_url`.",
    "模型的回答中断或无法读取，请重试；如果仍然如此，请检查 `base_url`。",
)
QUOTA_USED_UP = Advice(
    "quota_exceeded",
    "The account's quota or credit at the provider is used up, so trying again does not help until it is "
    "renewed; add credit or raise the limit in the provider's billing settings, or choose another model.",
    "该账户在提供商处的配额或余额已用完，恢复之前重试也没有用；"
    "请在提供商的账单设置中充值或提高限额，或换一个模型。",
)
NO_ANSWER = Advice(PROVIDER_ERROR, "The model did not answer.", "模型没有回答。")
PROVIDERS = ("openai", "anthropic", "google", "langchain_openai", "httpx", "httpx2", "ollama", "aiohttp")


def explain(error: BaseException) -> ModelError | None:
    """Return the error to show to the user when a model raised `error`; None if it is not a model's error."""
    advice = next((advice for cls, advice in ADVICE if isinstance(error, cls)), None)
    if advice is None and type(error).__module__.partition(".")[0] in PROVIDERS:
        advice = NO_ANSWER
    if advice is None:
        return None
    if str(error).startswith(BROKEN_ANSWER):
        advice = BROKEN
    elif is_quota_used_up(error):
        advice = QUOTA_USED_UP
    notes = " ".join(getattr(error, "__notes__", ()))
    detail = f"{_detail(error)} {notes}".strip()[:LONGEST_DETAIL]
    return ModelError(
        f"{advice.english} ({detail})", reason=advice.reason, in_chinese=f"{advice.chinese}（{detail}）"
    )


def reason_of(error: BaseException) -> str:
    """Return the reason code of a failed call."""
    if is_quota_used_up(error):
        return QUOTA_USED_UP.reason
    return next((advice.reason for cls, advice in ADVICE if isinstance(error, cls)), PROVIDER_ERROR)


def _detail(error: BaseException) -> str:
    """Return the provider's error message without the JSON around it."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    said = inner.get("message") if isinstance(inner, dict) else inner
    status = getattr(error, "status_code", None)
    if isinstance(said, str) and said.strip() and isinstance(status, int):
        return f"{status}: {' '.join(said.split())}"
    words = " ".join(without_objects(str(error)).split()).removeprefix(BROKEN_ANSWER)
    cause = known_reason(error)
    # SDKs raise "Connection error." without the reason.
    return words if cause is None or cause in words else f"{words.rstrip('.:')}: {cause}".lstrip(": ")
