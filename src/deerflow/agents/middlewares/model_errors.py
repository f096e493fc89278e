"""Retries failed model calls, and raises a readable error when a call fails for good.

The transport has already made its immediate retries. This middleware waits longer, publishes an event for
clients, and suspends calls to a model that keeps failing. A context overflow is not retried: the middleware
that compacts the conversation is further out. A rate-limited provider is available: the middleware waits as
long as it asks, and does not count it as failing. An account whose quota is used up is not waited for.
"""

import asyncio
import hashlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Self

from langchain_core.exceptions import ContextOverflowError, ModelRateLimitError
from langchain_core.exceptions import ModelError as ProviderError
from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr
from typing_extensions import override

from deerflow.agents.messages import is_question
from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import CircuitBreakerSettings, LlmCallSettings, Settings
from deerflow.domain.language import is_chinese
from deerflow.errors import ModelError
from deerflow.models import explain
from deerflow.models.explain import is_quota_used_up, retry_after, retry_info
from deerflow.observability.meters import MODEL_RETRIES

Clock = Callable[[], float]
_ADDRESSES = ("openai_api_base", "base_url", "api_base", "anthropic_api_url", "azure_endpoint")


class CircuitBreaker:
    """Counts consecutive failed calls; when open, it lets one trial call through per recovery period."""

    def __init__(
        self, *, failure_threshold: int, recovery_seconds: float, clock: Clock = time.monotonic
    ) -> None:
        self._threshold = failure_threshold
        self._recovery_seconds = recovery_seconds
        self._clock = clock
        self._opened_at = 0.0
        self.failures = 0
        self.last_failure = ""
        """The error of the last failed call."""
        self.last_failure_in_chinese = ""

    def seconds_left(self) -> float:
        """Return how long callers must wait; 0 if a call may be made."""
        if self.failures < self._threshold:
            return 0.0
        left = self._opened_at + self._recovery_seconds - self._clock()
        if left > 0:
            return left
        self._opened_at = self._clock()  # this caller makes the trial call; others wait for its outcome
        return 0.0

    def succeeded(self) -> None:
        """Close the circuit: the provider responded, even if with a refusal."""
        self.failures = 0

    def failed(self, why: str = "", why_in_chinese: str = "") -> None:
        """Count a failed call; reaching the threshold opens the circuit."""
        self.failures += 1
        self.last_failure, self.last_failure_in_chinese = why, why_in_chinese
        if self.failures >= self._threshold:
            self._opened_at = self._clock()

    def abandoned(self) -> None:
        """Record that a call ended without an outcome, so that the next call may be the trial."""
        self._opened_at = self._clock() - self._recovery_seconds


class CircuitBreakers:
    """One circuit breaker per model and API key.

    All agents share them on purpose: one call's failure spares the others the wait. Other keys and other
    servers are unaffected.
    """

    def __init__(self, settings: CircuitBreakerSettings, *, clock: Clock = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._breakers: dict[Hashable, CircuitBreaker] = {}

    def of(self, model: BaseChatModel) -> CircuitBreaker:
        """Return the circuit breaker of a model; a model with fallbacks has one for all its members."""
        key = tuple(map(_identity, getattr(model, "members", (model,))))
        found = self._breakers.get(key)
        if found is None:
            found = self._breakers[key] = CircuitBreaker(
                failure_threshold=self._settings.failure_threshold,
                recovery_seconds=self._settings.recovery_timeout_sec,
                clock=self._clock,
            )
        return found


def _identity(model: BaseChatModel) -> Hashable:
    """Return a key of provider, model, address and API key; the API key only as a digest."""
    named = getattr(model, "model_name", None) or getattr(model, "model", None)
    address = next((found for name in _ADDRESSES if (found := getattr(model, name, None))), None)
    secrets = [value for value in model.__dict__.values() if isinstance(value, SecretStr)]
    digest = hashlib.sha256("\n".join(secret.get_secret_value() for secret in secrets).encode())
    return type(model).__name__, str(named), str(address), digest.hexdigest()


logger = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]
OVERFLOW_WORDS = (
    "context length",
    "context_length",
    "context window",
    "maximum context",
    "prompt is too long",
    "too many tokens",
    "input is too long",
)


class ModelErrorMiddleware(ChainMiddleware):
    """Retries model calls that may still succeed."""

    switch = "model_errors"
    before = ("CallLimitMiddleware", "ModelTelemetryMiddleware")

    def __init__(
        self, *, settings: LlmCallSettings, breakers: CircuitBreakers, sleep: Sleep = asyncio.sleep
    ) -> None:
        super().__init__()
        self._settings = settings
        self._breakers = breakers
        self._sleep = sleep

    @classmethod
    def from_settings(cls, settings: Settings, breakers: CircuitBreakers | None) -> Self:
        return cls(settings=settings.llm_call, breakers=breakers or CircuitBreakers(settings.circuit_breaker))

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        breaker = self._breakers.of(request.model)
        if (left := breaker.seconds_left()) > 0:
            raise _circuit_open(breaker, left)
        try:
            response = await self._ask(request, handler)
        except Exception as error:
            cause = error.__cause__ or error
            if is_retryable(cause) and not is_rate_limit(cause) and isinstance(error, ModelError):
                breaker.failed(str(error), error.in_chinese)
            else:
                breaker.succeeded()
            raise
        except BaseException:
            breaker.abandoned()
            raise
        breaker.succeeded()
        return response

    async def _ask(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await handler(request)
            except Exception as error:  # provider SDKs raise arbitrary types; `explain` classifies them
                await self._recover(error, attempt, request)

    async def _recover(self, error: Exception, attempt: int, request: ModelCall) -> None:
        """Wait before the next attempt, or raise the final error."""
        if is_overflow(error):
            if isinstance(error, ContextOverflowError):
                raise error
            raise ContextOverflowError(str(error)) from error
        explained = explain(error)
        if explained is None:
            raise error
        context = request.runtime.context
        # A provider may echo the API key that it rejects, and every client of the run sees this text.
        redact = context.watch.redact
        explained = ModelError(
            redact(str(explained)), reason=explained.reason, in_chinese=redact(explained.in_chinese)
        )
        if not is_retryable(error) or attempt >= self._settings.retry_max_attempts:
            raise explained from error
        wait = delay_seconds(error, attempt, self._settings)
        if wait is None:
            raise _too_long_a_wait(explained, error, self._settings) from error
        logger.warning("run %s: model call failed (%s), again in %.1f s", context.run_id, error, wait)
        event = retry_event(explained, attempt, wait, self._settings, chinese=_writes_chinese(request))
        context.publish(event if context.task_id is None else {**event, "task_id": context.task_id})
        context.watch.meters.add(MODEL_RETRIES, str(event["reason"]))
        await self._sleep(wait)


def _writes_chinese(request: ModelCall) -> bool:
    """Return whether to use Chinese: by the client's locale, else by the language of the question."""
    locale = request.runtime.context.extra.get("locale")
    if isinstance(locale, str) and locale:
        return locale.lower().startswith("zh")
    question = next((each for each in reversed(request.messages) if is_question(each)), None)
    return question is not None and is_chinese(question.text)


def _circuit_open(breaker: CircuitBreaker, left: float) -> ModelError:
    seconds = math.ceil(left)
    return ModelError(
        f"The model failed {breaker.failures} times in a row and is left alone for {seconds} more seconds. "
        f"Its last failure: {breaker.last_failure} "
        "Try again then, choose another model, or give this one `fallbacks`.",
        in_chinese=f"模型连续失败 {breaker.failures} 次，{seconds} 秒内不再调用。"
        f"最近一次失败：{breaker.last_failure_in_chinese} 请稍后重试、换一个模型，或为它配置 `fallbacks`。",
    )


def _too_long_a_wait(explained: ModelError, error: BaseException, settings: LlmCallSettings) -> ModelError:
    asked, most = math.ceil(asked_wait(error) or 0), settings.retry_after_max_seconds
    return ModelError(
        f"{explained} It asks to wait {asked} s; `llm_call.retry_after_max_seconds` allows {most:g} s.",
        reason=explained.reason,
        in_chinese=f"{explained.in_chinese}它要求等待 {asked} 秒，"
        f"超过了 `llm_call.retry_after_max_seconds`（{most:g} 秒）。",
    )


def is_overflow(error: BaseException) -> bool:
    """Return whether the request exceeded the context window, however the provider words it."""
    if isinstance(error, ContextOverflowError):
        return True
    status = getattr(error, "status_code", None)
    words = str(error).lower()
    return status in (400, 413, 422) and any(phrase in words for phrase in OVERFLOW_WORDS)


def is_retryable(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    if is_quota_used_up(error):
        return False
    if isinstance(error, ProviderError):
        return error.is_retryable
    status = getattr(error, "status_code", None)
    return isinstance(status, int) and (status in (408, 409, 429) or status >= 500)


def is_rate_limit(error: BaseException) -> bool:
    """Return whether the provider reported a rate limit."""
    return isinstance(error, ModelRateLimitError) or getattr(error, "status_code", None) == 429


def asked_wait(error: BaseException) -> float | None:
    """Return how many seconds the provider asks to wait, in a header or in its text; None if it does not."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    asked = retry_after(headers) if headers is not None else None
    return retry_info(str(error)) if asked is None else asked


def delay_seconds(error: BaseException, attempt: int, settings: LlmCallSettings) -> float | None:
    """Return how long to wait; None if the provider asks for more than the settings allow.

    Without `Retry-After` the wait grows exponentially, with jitter so that clients do not retry at once.
    """
    is_burst = is_rate_limit(error)
    asked = asked_wait(error) if is_burst else None
    if asked is not None:
        return asked if asked <= settings.retry_after_max_seconds else None
    base = settings.burst_retry_base_delay_ms if is_burst else settings.retry_base_delay_ms
    longest: float = min(base * 2 ** (attempt - 1), max(settings.retry_cap_delay_ms, base if is_burst else 0))
    return longest / 1000 * random.uniform(0.5, 1.0)


def retry_event(
    explained: ModelError, attempt: int, wait: float, settings: LlmCallSettings, *, chinese: bool = False
) -> dict[str, object]:
    """Return the event that clients receive."""
    most, seconds = settings.retry_max_attempts, math.ceil(wait)
    message = (
        f"第 {attempt} 次尝试（共 {most} 次）失败，{seconds} 秒后重试：{explained.in_chinese}"
        if chinese
        else f"Attempt {attempt} of {most} failed; trying again in {seconds} s: {explained}"
    )
    return {
        "type": "llm_retry",
        "attempt": attempt,
        "max_attempts": most,
        "wait_ms": round(wait * 1000),
        "reason": explained.reason,
        "message": message,
    }
