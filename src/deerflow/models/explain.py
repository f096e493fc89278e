"""Explains errors of model calls: what to do about them, whether a quota is used up, how long to wait.

It does not import the OpenAI SDK: agents use it too, and the SDK's errors would cost them 10 MB of memory.
"""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

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

LONGEST_DETAIL = 500
PROVIDER_ERROR = "provider_error"
RATE_LIMITED = "rate_limited"


@dataclass(frozen=True, slots=True)
class Advice:
    """A kind of failure: `reason` for programs, and the message for users in two languages."""

    reason: str
    english: str
    chinese: str


ADVICE: Mapping[type[Exception], Advice] = {
    ContextOverflowError: Advice(
        "overflow",
        "The conversation is longer than the model can read; start a new thread.",
        "对话超出了模型能读取的长度，请新建一个对话。",
    ),
    ModelAuthenticationError: Advice(
        "key_refused",
        "The model's provider refused the key; check `api_key`.",
        "模型提供商拒绝了密钥，请检查 `api_key`。",
    ),
    ModelPermissionDeniedError: Advice(
        "key_refused",
        "The key may not use this model; check the account or choose another model.",
        "该密钥无权使用此模型，请检查账户或换一个模型。",
    ),
    ModelNotFoundError: Advice(
        "model_unknown",
        "The provider does not know this model; check `model` and `base_url`.",
        "提供商没有这个模型，请检查 `model` 和 `base_url`。",
    ),
    ModelRateLimitError: Advice(
        RATE_LIMITED,
        "The provider takes no more calls for now; wait, or give the model `fallbacks`.",
        "提供商暂时不接受更多调用，请稍候，或为该模型配置 `fallbacks`。",
    ),
    ModelTimeoutError: Advice(
        "timeout",
        "The model did not answer in time; try again, or raise `timeout`.",
        "模型没有及时回答，请重试，或调大 `timeout`。",
    ),
    ModelConnectionError: Advice(
        "connection",
        "The model's server could not be reached, or closed the connection; check `base_url`.",
        "无法连接模型服务器，或连接被中断，请检查 `base_url`。",
    ),
    ModelInvalidRequestError: Advice(
        "request_refused", "The provider refused the request.", "提供商拒绝了这次请求。"
    ),
    ModelAPIError: Advice(
        PROVIDER_ERROR,
        "The provider has a problem of its own; try again later.",
        "提供商自身出现故障，请稍后重试。",
    ),
}
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
    advice = next((advice for cls, advice in ADVICE.items() if isinstance(error, cls)), None)
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
    return next((advice.reason for cls, advice in ADVICE.items() if isinstance(error, cls)), PROVIDER_ERROR)


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


PAYMENT_REQUIRED = 402
STATUSES = frozenset({400, PAYMENT_REQUIRED, 403, 429})
CODES = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "exceeded_current_quota_error",
        "insufficient_user_quota",
        "insufficient_balance",
        "arrearage",
        "billing_error",
    }
)
"""Error codes and types of OpenAI, Anthropic and compatible servers."""
WORDS = re.compile(
    r"credit balance is too low|exceeded your current quota|billing hard limit|out of credits?\b"
    r"|(?:insufficient|not enough) (?:account )?(?:balance|credits?|funds|quota)"
    r"|quota (?:is |was |has been |already )?(?:exhausted|used up)"
    r"|(?:exhausted|used up) (?:your|the|its) (?:\w+ )?quota"
    r"|余额不足|欠费|(?:配额|额度)(?:已|已经|被)?(?:用尽|用完|耗尽)"
)
GOOGLE = "resource_exhausted"
GOOGLE_WORDS = re.compile(r"perday|credits are depleted|spending cap")
"""Google words a limit per minute and one per day alike; the id of the quota tells them apart."""


def is_quota_used_up(error: BaseException) -> bool:
    """Return whether a provider refused a call because the account's quota or credit is used up."""
    status = _status(error)
    if isinstance(error, (ModelAPIError, ModelConnectionError, ModelTimeoutError)):
        return False
    if status is not None and status not in STATUSES:
        return False
    if status == PAYMENT_REQUIRED or not CODES.isdisjoint(_codes(error)):
        return True
    words = str(error).lower()
    if GOOGLE in words:
        return GOOGLE_WORDS.search(words) is not None
    # A provider that says when to call again has a rate limit, whatever it calls it.
    return WORDS.search(words) is not None and not _says_when(error)


def _status(error: BaseException) -> int | None:
    """Return the HTTP status; Google's errors have it in `code`."""
    found = (getattr(error, name, None) for name in ("status_code", "code"))
    return next((each for each in found if isinstance(each, int)), None)


def _codes(error: BaseException) -> Iterator[str]:
    """Yield the codes and types that an error and its body name, in lower case."""
    body = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, Mapping) else None
    for holder in (body, inner):
        if isinstance(holder, Mapping):
            yield from (str(holder.get(key)).lower() for key in ("code", "type"))
    yield from (str(getattr(error, key, None)).lower() for key in ("code", "type"))


def _says_when(error: BaseException) -> bool:
    headers = getattr(getattr(error, "response", None), "headers", None)
    return headers is not None and retry_after(headers) is not None


_RETRY_INFO = re.compile(r"""retryDelay['"]: ['"](\d+(?:\.\d+)?)s""")


def retry_info(words: str) -> float | None:
    """Return the delay in seconds of a `RetryInfo` in Google's error text, which has no header for it."""
    found = _RETRY_INFO.search(words)
    return float(found[1]) if found else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay in seconds that `Retry-After` (or `retry-after-ms`) requests."""
    value = headers.get("retry-after", "")
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        return max(0.0, float(value)) if value else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
