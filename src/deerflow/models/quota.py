"""Recognizes errors that say that an account's quota or credit is used up, so that a retry does not help.

Providers use the status of rate limits (429) for it, or those of refused requests (400, 402, 403).
A module of its own: agents read it too, and the errors of the OpenAI SDK would cost them 10 MB of memory.
"""

import re
from collections.abc import Iterator, Mapping

from langchain_core.exceptions import ModelAPIError, ModelConnectionError, ModelTimeoutError

from deerflow.models.retry_after import retry_after

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
