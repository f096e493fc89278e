"""Which failures of a model are tried again, how long that takes, and when it is left alone."""

import httpx
import openai
import pytest
from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelInvalidRequestError,
    ModelRateLimitError,
)
from langchain_openai import ChatOpenAI

from deerflow.agents.middlewares.model_errors import (
    CircuitBreaker,
    CircuitBreakers,
    delay_seconds,
    is_overflow,
    is_retryable,
    retry_event,
)
from deerflow.config import CircuitBreakerSettings, LlmCallSettings
from deerflow.errors import ModelError
from deerflow.models import explain, reason_of

SETTINGS = LlmCallSettings()


class RefusedError(Exception):
    """What some other provider's SDK raises."""

    def __init__(self, status_code: int, words: str = "no") -> None:
        super().__init__(words)
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ModelAPIError("down"), True),
        (ModelRateLimitError("slow"), True),
        (ModelAuthenticationError("key"), False),
        (RefusedError(503), True),
        (RefusedError(429), True),
        (RefusedError(404), False),
        (ValueError("ours"), False),
    ],
)
def test_only_failures_that_may_pass_are_tried_again(error: Exception, again: bool) -> None:
    assert is_retryable(error) is again


def refused(status: int, body: object, **headers: str) -> openai.APIStatusError:
    response = httpx.Response(status, headers=headers, request=httpx.Request("POST", "http://x"))
    return openai.APIStatusError(f"Error code: {status} - {body}", response=response, body=body)  # type: ignore[arg-type]


def exhausted(quota: str) -> ModelRateLimitError:
    """Return what Google's class raises: the words are the same for a minute and for a day."""
    return ModelRateLimitError(
        "Error calling model 'm' (RESOURCE_EXHAUSTED): 429 RESOURCE_EXHAUSTED. {'error': {'message': 'You "
        "exceeded your current quota, please check your plan and billing details. Please retry in 26.5s.', "
        f"'details': [{{'quotaId': '{quota}'}}, {{'retryDelay': '26s'}}]}}}}"
    )


@pytest.mark.parametrize(
    "error",
    [
        refused(429, {"code": "insufficient_quota", "message": "no"}, **{"retry-after": "1"}),
        refused(429, {"type": "insufficient_quota", "code": None}),
        refused(400, {"error": {"code": "billing_hard_limit_reached", "message": "no"}}),
        refused(429, {"message": "You exceeded your current quota, please check your plan."}),
        refused(429, {"message": "The free quota has been exhausted."}),
        refused(403, {"type": "exceeded_current_quota_error"}),
        refused(402, {"message": "Insufficient Balance"}),
        refused(400, {"code": "Arrearage", "message": "Access denied"}),
        refused(429, {"code": 1113, "message": "您的账户已欠费，请充值后重试"}),
        ModelInvalidRequestError("400 - Your credit balance is too low to access the Anthropic API."),
        exhausted("GenerateRequestsPerDayPerProjectPerModel-FreeTier"),
    ],
    ids=str,
)
def test_a_quota_that_is_used_up_is_not_tried_again_and_says_what_to_do(error: Exception) -> None:
    explained = explain(error)

    assert not is_retryable(error)
    assert explained is not None
    assert explained.reason == reason_of(error) == "quota_exceeded"
    assert "billing settings" in str(explained)
    assert "充值" in explained.in_chinese


@pytest.mark.parametrize(
    "error",
    [
        refused(429, {"code": "rate_limit_exceeded", "message": "Rate limit: requests per day (RPD) 200"}),
        refused(429, {"message": "You exceeded your current quota."}, **{"retry-after": "20"}),
        refused(429, {"message": "Call rate limit exceeded; see https://example.com/quotaincrease"}),
        refused(503, {"message": "quota exhausted"}),
        ModelRateLimitError("429 RESOURCE_EXHAUSTED. Resource has been exhausted (e.g. check quota)."),
        exhausted("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
    ],
    ids=str,
)
def test_a_rate_limit_is_tried_again_whatever_it_says_of_quotas(error: Exception) -> None:
    assert is_retryable(error)
    assert reason_of(error) != "quota_exceeded"


@pytest.mark.parametrize(
    ("error", "overflow"),
    [
        (ContextOverflowError("x"), True),
        (RefusedError(400, "This model's maximum context length is 8192 tokens"), True),
        (RefusedError(413, "prompt is too long: 250000 tokens"), True),
        (RefusedError(400, "unknown parameter"), False),
        (RefusedError(500, "context length"), False),
    ],
)
def test_an_overflow_is_known_in_any_providers_words(error: Exception, overflow: bool) -> None:
    assert is_overflow(error) is overflow


def test_waits_grow_stay_below_the_cap_and_leave_something_to_chance() -> None:
    waits = [delay_seconds(ModelAPIError("x"), attempt, SETTINGS) or 0 for attempt in (1, 2, 3, 9)]
    burst = delay_seconds(ModelRateLimitError("x"), 1, SETTINGS) or 0

    assert 0.5 <= waits[0] <= 1 <= waits[1] <= 2 <= waits[2] <= 4 <= waits[3] <= 8
    assert 2.5 <= burst <= 5


def limited(**headers: str) -> openai.RateLimitError:
    response = httpx.Response(429, headers=headers, request=httpx.Request("POST", "http://x"))
    return openai.RateLimitError("no", response=response, body=None)  # type: ignore[arg-type]


def test_a_provider_is_waited_for_as_long_as_it_asks_within_the_settings() -> None:
    settings = LlmCallSettings(retry_after_max_seconds=30)

    waits = [delay_seconds(limited(**{"retry-after": asked}), 1, settings) for asked in ("20", "31")]

    assert waits == [20, None]
    assert delay_seconds(exhausted("GenerateRequestsPerMinutePerProjectPerModel"), 1, settings) == 26
    assert 2.5 <= (delay_seconds(limited(), 1, settings) or 0) <= 5


def test_people_are_told_that_it_is_tried_again_in_their_language() -> None:
    explained = ModelError("Too many calls.", reason="rate_limited", in_chinese="调用太多。")

    event = retry_event(explained, 1, 1.5, SETTINGS)
    chinese = retry_event(explained, 2, 8, SETTINGS, chinese=True)

    assert event == {
        "type": "llm_retry",
        "attempt": 1,
        "max_attempts": 3,
        "wait_ms": 1500,
        "reason": "rate_limited",
        "message": "Attempt 1 of 3 failed; trying again in 2 s: Too many calls.",
    }
    assert chinese["message"] == "第 2 次尝试（共 3 次）失败，8 秒后重试：调用太多。"


def test_a_model_that_keeps_failing_is_left_alone_then_tried_by_one() -> None:
    now = [100.0]
    breaker = CircuitBreaker(failure_threshold=2, recovery_seconds=60, clock=lambda: now[0])

    breaker.failed()
    assert breaker.seconds_left() == 0
    breaker.failed()
    assert breaker.seconds_left() == 60
    now[0] += 61
    assert breaker.seconds_left() == 0
    assert breaker.seconds_left() == 60, "the second caller waits for what the first finds"
    breaker.succeeded()
    assert breaker.seconds_left() == 0


def test_a_call_that_was_cancelled_leaves_the_next_one_to_try() -> None:
    now = [100.0]
    breaker = CircuitBreaker(failure_threshold=1, recovery_seconds=60, clock=lambda: now[0])
    breaker.failed("down")
    now[0] += 61

    assert breaker.seconds_left() == 0
    breaker.abandoned()

    assert breaker.seconds_left() == 0


def test_circuits_are_apart_for_each_model_address_and_key() -> None:
    def model(**more: str) -> ChatOpenAI:
        given = {"model": "m", "base_url": "http://a", "api_key": "k", **more}
        return ChatOpenAI(**given)  # type: ignore[arg-type]

    breakers = CircuitBreakers(CircuitBreakerSettings(failure_threshold=1))
    breakers.of(model()).failed("down")

    assert breakers.of(model(temperature="0")).seconds_left() > 0
    for other in (model(api_key="k2"), model(base_url="http://b"), model(model="m2")):
        assert breakers.of(other).seconds_left() == 0
