"""Which failures are tried again, and when."""

import time
from email.utils import formatdate

import openai
import pytest

from deerflow.models.explain import retry_after
from deerflow.models.failures import connection_error, error_of_body, retry_delay, stream_error

URL = "https://models.example/v1/chat/completions"


def test_waiting_grows_up_to_a_limit_and_is_never_twice_the_same() -> None:
    error = error_of_body(URL, 500, {}, {})

    longest = [max(retry_delay(error, attempt) or 0 for _ in range(50)) for attempt in range(8)]

    assert longest[0] <= 0.5
    assert longest[-1] <= 8
    assert longest[0] < longest[2] < longest[4]
    assert len({retry_delay(error, 3) for _ in range(10)}) > 1


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, 0),
        ({}, None),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers) == expected


def test_retry_after_may_be_a_date() -> None:
    seconds = retry_after({"retry-after": formatdate(time.time() + 30, usegmt=True)})

    assert seconds is not None
    assert 25 < seconds <= 30


def test_an_empty_account_is_not_asked_again() -> None:
    for code in ("insufficient_quota", "billing_hard_limit_reached"):
        error = error_of_body(URL, 429, {"retry-after": "1"}, {"error": {"code": code, "message": "pay"}})

        assert retry_delay(error, 0) is None


def test_an_error_inside_a_stream_keeps_its_code() -> None:
    assert isinstance(stream_error(URL, {"code": 429, "message": "slow"}), openai.RateLimitError)
    assert isinstance(stream_error(URL, {"code": "502"}), openai.InternalServerError)
    assert str(stream_error(URL, {"code": "odd", "message": "hm"})) == "hm"
    assert str(stream_error(URL, "just text")) == "just text"


@pytest.mark.parametrize(
    ("detail", "expected", "is_tried_again"),
    [
        ({"type": "server_error", "code": None, "message": "sorry"}, openai.InternalServerError, True),
        ({"type": "overloaded_error", "message": "busy"}, openai.InternalServerError, True),
        ({"code": "Throttling.RateQuota", "message": "slow"}, openai.RateLimitError, True),
        ({"code": "rate_limit_exceeded", "message": "slow"}, openai.RateLimitError, True),
        ({"code": "insufficient_quota", "message": "pay"}, openai.RateLimitError, False),
        ({"type": "invalid_request_error", "code": "bad", "message": "no"}, openai.BadRequestError, False),
        ({"code": "invalid_api_key", "message": "who?"}, openai.AuthenticationError, False),
        ({"message": "server_error"}, openai.APIError, False),
    ],
)
def test_an_error_inside_a_stream_is_known_by_its_words(
    detail: dict[str, object], expected: type[openai.APIError], is_tried_again: bool
) -> None:
    error = stream_error(URL, detail)

    assert type(error) is expected
    assert (retry_delay(error, 0) is not None) is is_tried_again


def test_a_connection_error_names_the_server_but_no_password() -> None:
    error = connection_error("https://user:pass@models.example/v1", OSError("refused"))

    assert str(error) == "Connection error with https://models.example: refused"


def test_a_connection_error_does_not_show_the_password_of_a_proxy() -> None:
    cause = OSError("407, message='Proxy Authentication Required', url='http://user:hunter2@proxy:3128'")

    error = connection_error("https://models.example/v1", cause)

    assert "hunter2" not in str(error)
    assert "url='http://proxy:3128'" in str(error)
