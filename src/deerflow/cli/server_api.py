"""HTTP client for commands that act on a running server."""

from typing import Any

import aiohttp

from deerflow.connection_errors import connection_reason
from deerflow.errors import DeerFlowError, InvalidInputError

SECONDS = 30


class ServerApi:
    """The API of the DeerFlow server at a URL."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url.rstrip("/")

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the response body; errors and failed connections are `DeerFlowError`."""
        return await self._sent(method, path, json=body)

    async def send(self, path: str, data: bytes, *, kind: str, **parameters: str) -> Any:
        """Post bytes of a media type and return the response body."""
        return await self._sent("POST", path, data=data, headers={"Content-Type": kind}, params=parameters)

    async def _sent(self, method: str, path: str, **options: Any) -> Any:
        try:
            async with self._session.request(method, f"{self._url}/api{path}", **options) as answer:
                known = answer.content_type == "application/json"
                data = await answer.json() if known else await answer.read()
                if answer.status >= 400:
                    detail = data.get("detail") if isinstance(data, dict) else None
                    raise InvalidInputError(str(detail or f"the server answered {answer.status}"))
                return data
        except aiohttp.InvalidURL as error:
            raise InvalidInputError(
                f"--url '{self._url}' is no address; write it like http://127.0.0.1:2026"
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DeerFlowError(
                f"no DeerFlow server answers at {self._url}: {_reason(error)}. "
                "Start one with `deerflow serve`, or name another with --url."
            ) from error


def _reason(error: Exception) -> str:
    """Return why the connection failed, for people."""
    if isinstance(error, TimeoutError):
        return f"nothing came within {SECONDS} s"
    return connection_reason(error)
