"""Explains why a connection failed, independent of the HTTP library.

The libraries' own texts show objects (`ssl:<ssl.SSLContext object at 0x…>`) or hide the cause
("Connection error.").
"""

import errno
import re
import socket
import ssl
from collections.abc import Iterator

MAX_CAUSES = 12
"""How many causes of an error are followed."""
BY_NUMBER = {
    errno.ECONNREFUSED: "the connection was refused",
    errno.ECONNRESET: "the connection was reset",
    errno.EPIPE: "the connection was closed",
    errno.EHOSTUNREACH: "there is no route to the host",
    errno.ENETUNREACH: "the network cannot be reached",
    errno.ETIMEDOUT: "nothing answered in time",
}
BY_CLASS = {
    "ClientPayloadError": "the answer broke off",
    "RemoteProtocolError": "the server broke off",
    "ServerDisconnectedError": "the server hung up",
}
"""Errors of HTTP libraries without an underlying system error."""
_OBJECT = re.compile(r"\s*(?:\w+:)?<[^<>\n]{1,200} at 0x[0-9a-fA-F]+[^<>\n]{0,200}>")
_TLS = re.compile(r"\s*ssl:(?:default|True|False|None)\b")
_GENERIC_CALL = re.compile(r"Connect call failed")


def connection_reason(error: BaseException) -> str:
    """Return why a connection failed; the error's own text if the reason is unknown."""
    return known_reason(error) or " ".join(without_objects(str(error)).split()) or type(error).__name__


def known_reason(error: BaseException) -> str | None:
    """Return the reason that the system reports for a failed connection; None if there is none."""
    causes = list(_causes(error))
    for one in causes:
        if (reason := _of_system(one)) is not None:
            return reason
    return next((BY_CLASS[name] for one in causes if (name := type(one).__name__) in BY_CLASS), None)


def without_objects(text: str) -> str:
    """Remove object representations with memory addresses from a text."""
    return _TLS.sub("", _OBJECT.sub("", text)).strip()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, nearest first."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < MAX_CAUSES:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = [getattr(one, "os_error", None), getattr(one, "certificate_error", None), one.__cause__]
        inner += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        if type(one).__module__.startswith("httpcore"):  # it hides the cause from tracebacks
            inner.append(one.__context__)
        waiting += [each for each in inner if isinstance(each, BaseException)]


def _of_system(error: BaseException) -> str | None:
    match error:
        case socket.gaierror():
            return "the name of the host cannot be resolved"
        # aiohttp's own classes for these two carry no reason; their cause does.
        case ssl.SSLCertVerificationError(verify_message=str(said)):
            return f"its certificate is not trusted ({said})"
        case ssl.SSLError(reason=str(said)):
            return f"no secure connection could be made ({said.replace('_', ' ').lower()})"
        case TimeoutError():
            return "nothing answered in time"
        case OSError() if error.errno in BY_NUMBER:
            return BY_NUMBER[error.errno]
        case OSError() if _GENERIC_CALL.search(str(error)):  # several addresses of one host failed
            return BY_NUMBER[errno.ECONNREFUSED]
    return None
