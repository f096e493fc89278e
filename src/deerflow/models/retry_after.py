"""Reads how long a server asks its clients to wait.

A module of its own: agents read it too, and the errors of the OpenAI SDK would cost them 10 MB of memory.
"""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

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
