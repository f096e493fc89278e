"""Configure logging as text or JSON, and remove secrets from all log lines, including those of libraries."""

import hashlib
import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Any, Literal
from urllib.parse import quote

from typing_extensions import override

from deerflow.config import LoadedSettings
from deerflow.config.secrets import (
    HIDDEN,
    SECRET_WORDS,
    hidden_values,
    is_secret_key,
    secret_values,
    without_login,
)

LogFormat = Literal["text", "json"]

_IDS: ContextVar[Mapping[str, str] | None] = ContextVar("log_ids", default=None)
"""Ids of the current run, thread, task and trace, added to every log line."""

_CHATTY = ("aiohttp.access", "asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "openai", "urllib3")
"""Loggers of libraries that log every request at `info`."""

_SECRET_SHAPES = re.compile(
    r"(?i:(?<=bearer )|(?<=basic ))[\w.~+/=-]{8,}"
    r"|\bsk-[\w-]{8,}|\bxox[a-z]-[\w-]{8,}|\bgh[a-z]_\w{16,}|\bgithub_pat_\w{16,}|\bAIza[\w-]{20,}|\bAKIA[A-Z0-9]{12,}"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)
"""Keys and tokens of well-known providers, and JSON web tokens."""

_ASSIGNMENT = re.compile(
    rf"(?i)(?<![\w-])(?P<name>[\w-]*?(?:{'|'.join(sorted(SECRET_WORDS, key=len, reverse=True))}))"
    r"(?P<sign>[\"']?\s{0,3}[=:]\s{0,3}[\"']?)(?P<value>[^\s\"',;&}]{6,})"
)
MAX_REDACTED_CHARS = 100_000
_SHORT_CHARS = 2000
_HEAD_CHARS = 4
_FOLDERS = frozenset({"PWD", "OLDPWD"})
"""Variables with names like passwords that hold the working directory, which is part of many log lines."""
_TRACE = re.compile(r"[0-9a-f]{32}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def configure_logging(
    level: str = "info",
    format: LogFormat = "text",  # noqa: A002 - the name of the setting
    *,
    secrets: Iterable[str] = (),
    stream: IO[str] | None = None,
) -> None:
    """Send all log lines of this process to `stream` (default: stderr); another call replaces the handler.

    Args:
        secrets: Texts removed from every line, such as the API keys in the settings.

    """
    redact = Redactor(secrets)
    handler = _OurHandler(stream or sys.stderr, redact)
    handler.addFilter(_with_ids)
    handler.setFormatter(JsonFormatter(redact) if format == "json" else TextFormatter(redact))
    root = logging.getLogger()
    for old in [other for other in root.handlers if isinstance(other, _OurHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level) if level != "debug" else root.level)


def mark_logs(**ids: str) -> None:
    """Add these ids to every further log line of this asyncio task and of those that it starts."""
    _IDS.set({**(_IDS.get() or {}), **ids})


def trace_id_of(run_id: str) -> str:
    """Return the trace id of a run, shared by its log lines and spans: 32 hexadecimal digits."""
    digits = run_id.replace("-", "").lower()
    return digits if _TRACE.fullmatch(digits) else hashlib.sha256(run_id.encode()).hexdigest()[:32]


def learn_secrets(secrets: Iterable[str]) -> None:
    """Also remove these texts from all further log lines, such as the keys of edited settings."""
    known = list(secrets)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _OurHandler):
            handler.redact.learn(known)


def secrets_of(loaded: LoadedSettings) -> Iterator[str]:
    """Yield the secrets in these settings and their environment, for `configure_logging`."""
    yield from secret_values(loaded.settings.model_dump())
    yield from secret_values(loaded.extensions.model_dump())
    for program in (*loaded.extensions.mcp_servers.values(), *loaded.settings.acp_agents.values()):
        yield from hidden_values(program.model_dump())
    yield from secret_values({name: value for name, value in loaded.env.items() if name not in _FOLDERS})


class Redactor:
    """Removes secrets from a text: known ones, those in known formats, and values of secret-like names."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._longest_first: list[str] = []
        self._heads: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add known secrets."""
        more = self._secrets | frozenset(filter(None, secrets))
        if more != self._secrets:
            written = more | {quote(secret, safe="") for secret in more}
            # Longest first: a secret that contains another must be removed as a whole.
            self._longest_first = sorted(written, key=len, reverse=True)
            self._heads = {secret[:_HEAD_CHARS] for secret in written}
            self._known = re.compile("|".join(map(re.escape, self._longest_first)))
            self._secrets = more

    def __call__(self, text: str) -> str:
        """Return `text` without secrets, for people; cut after `MAX_REDACTED_CHARS`."""
        if len(text) > MAX_REDACTED_CHARS:
            text = f"{text[:MAX_REDACTED_CHARS]} [{len(text) - MAX_REDACTED_CHARS} more characters]"
        text = _SECRET_SHAPES.sub(HIDDEN, without_login(self.known(text)))
        return _ASSIGNMENT.sub(_hide_value, text)

    def known(self, text: str) -> str:
        """Return `text` without the known secrets only: text that looks like one may be content."""
        if self._known is None:
            return text
        if len(text) <= _SHORT_CHARS:
            return self._known.sub(HIDDEN, text)
        # Ten times as fast as the regex: 15 ms for a million characters and 150 secrets.
        for secret in [secret for secret in self._longest_first if secret in text]:
            text = text.replace(secret, HIDDEN)
        return text

    def unfinished(self, text: str) -> int:
        """Return how many characters at the end of `text` may be the beginning of a known secret."""
        longest = len(self._longest_first[0]) - 1 if self._longest_first else 0
        tail = text[-longest:] if longest else ""
        ends = (len(tail) - start for start in range(len(tail)) if self._begins(tail[start:]))
        return next(ends, 0)

    def settled(self, text: str) -> int:
        """Return the length of the prefix whose redaction does not depend on the text that follows."""
        end = 0
        while self._known is not None:
            begin = len(text) - self.unfinished(text[end:])
            # Bounds the work for long texts: only a match across the start of an unfinished secret matters.
            start = max(end, len(text) - _SHORT_CHARS - len(self._longest_first[0]))
            found = self._known.finditer(text, start)
            across = next((one for one in found if one.start() < begin < one.end()), None)
            if across is None:
                return begin
            end = across.end()
        return len(text)

    def _begins(self, text: str) -> bool:
        if len(text) >= _HEAD_CHARS and text[:_HEAD_CHARS] not in self._heads:
            return False
        return any(secret.startswith(text) for secret in self._longest_first)


class StreamRedactor:
    """Removes known secrets from a streamed text, including secrets split over several pieces."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self._held = ""

    def __call__(self, piece: str) -> str:
        """Return the text that can be shown now; a possible beginning of a secret is held back."""
        text = self._held + piece
        end = self._redact.settled(text)
        self._held = text[end:]
        return self._redact.known(text[:end])

    def rest(self) -> str:
        """Return the text held back, at the end of the stream."""
        held, self._held = self._held, ""
        return self._redact.known(held)


class TextFormatter(logging.Formatter):
    """Formats a record as one line of text; a traceback follows on separate lines."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
        self._redact = redact

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        # Escaped: a line break in user input must not forge a log line.
        record.message = _CONTROL.sub(_escaped, record.message)
        extra = "".join(
            f" {name}={_CONTROL.sub(_escaped, str(value))}" for name, value in _extra(record).items()
        )
        return super().formatMessage(record) + extra

    @override
    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object per line; values from `extra=` become fields."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        clean = {name: _clean(name, value, self._redact) for name, value in line.items()}
        return json.dumps(clean, ensure_ascii=False, default=str)


class _OurHandler(logging.StreamHandler[IO[str]]):
    """The handler that `configure_logging` installs; handlers of embedding applications are kept."""

    def __init__(self, stream: IO[str], redact: Redactor) -> None:
        super().__init__(stream)
        self.redact = redact


def _with_ids(record: logging.LogRecord) -> bool:
    for name, value in (_IDS.get() or {}).items():
        if not hasattr(record, name):
            setattr(record, name, value)
    return True


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD_FIELDS}


def _clean(name: str, value: Any, redact: Redactor) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {str(key): _clean(str(key), inner, redact) for key, inner in value.items()}
        case list() | tuple():
            return [_clean(name, inner, redact) for inner in value]
    return HIDDEN if is_secret_key(name) else redact(str(value))


def _hide_value(found: re.Match[str]) -> str:
    if not is_secret_key(found["name"]) or found["value"].lower() in ("bearer", "basic"):
        return found[0]
    return f"{found['name']}{found['sign']}{HIDDEN}"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
