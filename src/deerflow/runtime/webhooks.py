"""Calls a webhook when a run ends: with retries, even if the server that admitted the run is gone by then.

A server that calls arbitrary URLs gives access to its own network (SSRF). So only addresses of the public
internet are called, as resolved at that moment, and redirects are not followed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import aiohttp

from deerflow.config.secrets import masked_address, url_secrets
from deerflow.connection_errors import connection_reason
from deerflow.domain import RunRecord, new_id
from deerflow.errors import AddressRefusedError, ConfigError, InvalidInputError, NotFoundError
from deerflow.guarded_http import allowed_networks, check_destination, check_web_address, guarded_session
from deerflow.observability.logs import Redactor
from deerflow.periodic import Periodic
from deerflow.runtime.json_views import run_out, stamp
from deerflow.runtime.serialization import to_json
from deerflow.runtime.states import ThreadStates
from deerflow.runtime.translate import visible_values
from deerflow.storage import Storage

logger = logging.getLogger(__name__)

_NAMESPACE = ("webhooks",)
_WAITING_SECONDS = 0.5
_IDLE_SECONDS = 5.0
_RETRY_SECONDS = (1.0, 5.0, 20.0)
_ORPHANED_SECONDS = 60.0
"""If the server that admitted a run has not called its webhook after this time, another one does."""
_TIMEOUT = aiohttp.ClientTimeout(total=15)
_RETRY_STATUSES = frozenset({408, 425, 429})
_RESOLVE_SECONDS = 5.0
_MAX_BYTES = 4 * 1024 * 1024
_PAGE = 1000


class Webhooks:
    """The webhooks that wait for a run's end."""

    def __init__(
        self, storage: Storage, states: ThreadStates, allow_cidrs: Callable[[], Sequence[str]]
    ) -> None:
        """Args: `allow_cidrs` returns the private networks that may be called."""
        self._store = storage.store
        self._runs = storage.runs
        self._states = states
        self._allow_cidrs = allow_cidrs
        self._server_id = new_id()
        self._waiting = 0
        self._poll = Periodic(
            self._deliver_due,
            lambda: _WAITING_SECONDS if self._waiting else _IDLE_SECONDS,
            name="calling webhooks",
        )
        self._deliveries: dict[str, asyncio.Task[None]] = {}

    async def check(self, url: str) -> None:
        """Raise on a URL that would not be called; what is unknown now is checked again at the run's end."""
        check_web_address(url, what="webhook")
        shown = masked_address(url)[:80]
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                await check_destination(url, allowed_networks(self._allow_cidrs()))
        except AddressRefusedError as error:
            raise InvalidInputError(f"webhook '{shown}' is refused: {error}") from error
        except (OSError, TimeoutError):  # the name may be resolvable then
            logger.info("webhook %s cannot be looked up yet", shown)

    async def expect(self, run_id: str, url: str) -> None:
        """Store the webhook of a run that is about to be admitted.

        Before the admission: a server that dies right after it must not have lost the webhook.
        """
        since = datetime.now(UTC).timestamp()
        await self._store.aput(_NAMESPACE, run_id, {"url": url, "server": self._server_id, "since": since})
        self._poll.wake()

    async def run(self) -> None:
        """Call the webhooks of ended runs, until cancelled."""
        try:
            await self._poll.run()
        finally:
            for task in self._deliveries.values():
                task.cancel()
            await asyncio.gather(*self._deliveries.values(), return_exceptions=True)

    async def _deliver_due(self) -> None:
        self._waiting = 0
        while items := await self._store.asearch(_NAMESPACE, limit=_PAGE, offset=self._waiting):
            for item in items:
                if item.key not in self._deliveries:
                    await self._deliver_if_due(item.key, item.value)
            self._waiting += len(items)
            if len(items) < _PAGE:
                break

    async def _deliver_if_due(self, run_id: str, value: Mapping[str, Any]) -> None:
        try:
            run = await self._runs.get(run_id)
        except NotFoundError:  # rejected or deleted, unless it is just being admitted
            if datetime.now(UTC).timestamp() > value.get("since", 0) + _ORPHANED_SECONDS:
                await self._store.adelete(_NAMESPACE, run_id)
            return
        if not run.status.is_terminal:
            return
        silence = (datetime.now(UTC) - run.updated_at).total_seconds()
        if value.get("server") == self._server_id or silence > _ORPHANED_SECONDS:
            task = asyncio.create_task(self._deliver(run, str(value["url"])), name=f"webhook of {run_id}")
            self._deliveries[run_id] = task
            task.add_done_callback(lambda _: self._deliveries.pop(run_id, None))

    async def _deliver(self, run: RunRecord, url: str) -> None:
        body = await self._body(run)
        problem: str | None = None
        for pause in (0.0, *_RETRY_SECONDS):
            await asyncio.sleep(pause)
            try:
                problem = await post(url, body, run_id=run.id, allow_cidrs=self._allow_cidrs())
            except (AddressRefusedError, ConfigError, ValueError) as error:  # no longer valid
                problem = f"it is refused: {error}"
                break
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                problem = connection_reason(error)
                continue
            if problem is None:
                break
        if problem is not None:
            hidden = Redactor(url_secrets(url, with_path=True))
            logger.warning("webhook of run %s was not delivered: %s", run.id, hidden(problem))
        await self._store.adelete(_NAMESPACE, run.id)

    async def _body(self, run: RunRecord) -> bytes:
        """Return a run with its thread's values, or without them if they are too large."""
        snapshot = await self._states.latest(run.thread_id)
        values = visible_values(snapshot.values) if snapshot else {}
        shown = {**run_out(run), "webhook_sent_at": stamp(datetime.now(UTC))}
        body = to_json({**shown, "values": values})
        return body if len(body) <= _MAX_BYTES else to_json({**shown, "values": None})


async def post(url: str, body: bytes, *, run_id: str, allow_cidrs: Sequence[str] = ()) -> str | None:
    """Post JSON to a URL; return the reason to retry, None when no retry is needed.

    `AddressRefusedError` when the address is private and not in `allow_cidrs`.
    """
    allowed = allowed_networks(allow_cidrs)
    # For IP literals in any spelling, which aiohttp does not resolve; names are resolved again below.
    await check_destination(url, allowed)
    headers = {"Content-Type": "application/json", "X-DeerFlow-Run-Id": run_id}
    async with (
        guarded_session(allowed, timeout=_TIMEOUT) as session,
        session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
    ):
        if answer.status < 300:
            return None
        if answer.status >= 500 or answer.status in _RETRY_STATUSES:
            return f"it answered {answer.status}"
        logger.warning("webhook of run %s answered %s, not trying again", run_id, answer.status)
        return None
