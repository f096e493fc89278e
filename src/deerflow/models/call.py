"""One encoded request to a chat-completions server, which can be sent again on a retry."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import orjson


@dataclass(frozen=True, slots=True)
class Call:
    """An encoded request body, and the SDK's request options that are not part of the body."""

    body: bytes
    is_stream: bool
    headers: Mapping[str, str]
    query: Mapping[str, str]
    read_seconds: float | None

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Self:
        """Split the arguments that LangChain's adapter passes to the SDK into body and options."""
        body = dict(payload)
        headers = body.pop("extra_headers", None) or {}
        query = body.pop("extra_query", None) or {}
        timeout = body.pop("timeout", None)
        body.update(body.pop("extra_body", None) or {})
        return cls(
            body=_encoded(body),
            is_stream=bool(body.get("stream")),
            headers=headers,
            query={key: str(value) for key, value in query.items()},
            read_seconds=timeout if isinstance(timeout, int | float) else None,
        )


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:  # a lone surrogate in the text, or an integer beyond 64 bits
        return json.dumps(body, ensure_ascii=False).encode(errors="replace")
