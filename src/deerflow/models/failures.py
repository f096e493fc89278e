"""Errors of the lean transport as the OpenAI SDK's exception classes, and their retry policy.

LangChain's adapter maps these classes to its provider-neutral ones, so agents see the same errors from the
lean transport and from the SDK.
"""

import random
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx2
import openai
import orjson

from deerflow.connection_errors import connection_reason
from deerflow.models.explain import BROKEN_ANSWER, is_quota_used_up, retry_after

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 8.0
LONGEST_RETRY_AFTER_SECONDS = 10.0
CLASS_OF_STATUS: Mapping[int, type[openai.APIStatusError]] = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
}
RETRIED_STATUSES = frozenset({408, 409, 429})
STATUS_OF_WORDS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("insufficient_quota", "billing_hard_limit"), 429),
    (("rate_limit", "ratelimit", "too_many_requests", "throttling"), 429),
    (("overloaded", "unavailable", "server_error", "internal_error", "timeout"), 503),
    (("authentication", "invalid_api_key", "invalidapikey"), 401),
    (("permission", "access_denied"), 403),
    (("invalid_request", "context_length", "invalidparameter"), 400),
)
"""Maps error codes and types inside a stream to the HTTP status that a normal response would have."""
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
"""User name and password in a URL, such as a proxy's."""


class BrokenAnswerError(openai.APIConnectionError):
    """The answer is truncated, malformed or not a chat completion."""


def status_error(url: str, status: int, headers: Mapping[str, str], raw: bytes) -> openai.APIStatusError:
    """Return the error for a response with this HTTP status."""
    try:
        body: object = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = raw.decode(errors="replace")[:2000]
    return error_of_body(url, status, headers, body)


def error_of_body(url: str, status: int, headers: Mapping[str, str], body: object) -> openai.APIStatusError:
    """Return the error for this status and decoded body."""
    cls = CLASS_OF_STATUS.get(status, openai.InternalServerError if status >= 500 else openai.APIStatusError)
    response = httpx2.Response(status, headers=dict(headers), request=request_to(url))
    detail = body.get("error", body) if isinstance(body, dict) else body
    return cls(f"Error code: {status} - {body}", response=response, body=detail)


def stream_error(url: str, detail: object) -> openai.APIError:
    """Return the error for an error object inside a stream with a successful status."""
    code = detail.get("code") if isinstance(detail, dict) else None
    if isinstance(code, str) and code.isdigit():
        code = int(code)
    if not (isinstance(code, int) and 400 <= code < 600):
        code = _status_in(detail)
    if code is not None:
        return error_of_body(url, code, {}, {"error": detail})
    message = detail.get("message") if isinstance(detail, dict) else detail
    return openai.APIError(str(message or "An error occurred during streaming"), request_to(url), body=detail)


def _status_in(detail: object) -> int | None:
    """Return the HTTP status that an error's code or type corresponds to; None if there is none."""
    if not isinstance(detail, dict):
        return None
    words = f"{detail.get('code')} {detail.get('type')}".lower()
    return next((status for known, status in STATUS_OF_WORDS if any(word in words for word in known)), None)


def connection_error(url: str, cause: BaseException) -> openai.APIConnectionError:
    """Return the error for a server that is unreachable or closed the connection."""
    parts = urlsplit(url)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    why = CREDENTIALS.sub("", connection_reason(cause))
    return openai.APIConnectionError(message=f"Connection error with {where}: {why}", request=request_to(url))


def broken_answer(url: str, reason: str) -> BrokenAnswerError:
    """Return the error for an answer that cannot be used."""
    return BrokenAnswerError(message=f"{BROKEN_ANSWER}{reason}", request=request_to(url))


def request_to(url: str) -> httpx2.Request:
    """Return the request for an SDK error; without headers, so that no key is logged."""
    return httpx2.Request("POST", url)


def retry_delay(error: openai.APIError, attempt: int) -> float | None:
    """Return the seconds to wait before a retry; None if the error is not retryable.

    Args:
        attempt: The number of attempts before the failed one.
    """
    if isinstance(error, openai.APIConnectionError):  # includes timeouts
        return _backoff(attempt)
    if not isinstance(error, openai.APIStatusError) or is_quota_used_up(error):
        return None
    if error.status_code not in RETRIED_STATUSES and error.status_code < 500:
        return None
    asked = retry_after(error.response.headers)
    if asked is None:
        return _backoff(attempt)
    # The user does not see this wait: a longer one is left to the fallback or to a caller that reports it.
    return asked if asked <= LONGEST_RETRY_AFTER_SECONDS else None


def _backoff(attempt: int) -> float:
    # Half of the delay is jitter, so that callers rejected together do not retry together.
    longest = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0**attempt)
    return longest * random.uniform(0.5, 1.0)
