"""One WebSocket of the thread protocol: receives commands, sends responses and events.

One task serves all subscriptions of a socket in the order of sequence numbers: clients treat a run's end as
the end of everything that belongs to the run, whichever subscription delivered it.
"""

import asyncio
import contextlib
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from deerflow.app import DeerFlow
from deerflow.domain import new_id
from deerflow.errors import DeerFlowError
from deerflow.gateway.protocol.commands import Command, Commander, CommandError, failure, parse_command
from deerflow.gateway.protocol.events import EventFilter, ProtocolEvent, parse_filter
from deerflow.gateway.protocol.feed import first_seq, follow_thread
from deerflow.runtime import to_json

_MOST_SUBSCRIPTIONS = 64
_REMEMBERED = 4096
_SUBSCRIBE_SECONDS = 0.25
"""How long the end of a run is delayed after a command: clients subscribe several times in a row, and after
the end of a run they treat a later subscription as finished.
"""


@dataclass(frozen=True, slots=True)
class _Subscription:
    wanted: EventFilter
    answered_at: int
    """Events sent before its response: the client could not yet assign those to this subscription."""

    def wants(self, event: ProtocolEvent) -> bool:
        return event.seq > (self.wanted.since or 0) and self.wanted.matches(event)


class ThreadSocket:
    """Serves one connection until either side closes it."""

    def __init__(self, socket: WebSocket, deerflow: DeerFlow, thread_id: str, user: str) -> None:
        self._socket = socket
        self._deerflow = deerflow
        self._thread_id = thread_id
        self._user = user
        self._commander = Commander(deerflow, thread_id, user)
        self._subscriptions: dict[str, _Subscription] = {}
        self._sender: asyncio.Task[None] | None = None
        self._send_turn = asyncio.Lock()
        """Held while events are sent: the sender is stopped only between batches."""
        self._sending = asyncio.Lock()
        self._commanded_at = 0.0
        self._sent: OrderedDict[str, int] = OrderedDict()
        self._sent_count = 0
        self._last_seq = 0

    async def serve(self) -> None:
        """Answer commands and deliver subscribed events until the client disconnects."""
        try:
            while True:
                frame = await self._socket.receive()
                if frame["type"] == "websocket.disconnect":
                    return
                await self._handle(frame.get("text"))
        except WebSocketDisconnect:
            return
        finally:
            await self._stop_sender()

    async def _handle(self, text: str | None) -> None:
        try:
            if text is None:
                raise CommandError("invalid_argument", "Protocol commands must be text, not bytes.")
            body = _parsed(text)
            command = parse_command(body)
        except CommandError as error:
            await self._send(to_json(failure(None, error)))
            return
        self._commanded_at = asyncio.get_running_loop().time()
        match command.method:
            case "subscription.subscribe" | "subscription.reconnect":
                await self._subscribe(command)
            case "subscription.unsubscribe":
                await self._unsubscribe(command)
            case _:
                await self._send(to_json(await self._commander.answer(command)))

    async def _subscribe(self, command: Command) -> None:
        try:
            wanted = parse_filter(command.params)
            if len(self._subscriptions) >= _MOST_SUBSCRIPTIONS:
                text = f"this socket has {_MOST_SUBSCRIPTIONS} subscriptions; unsubscribe from some first"
                raise CommandError("invalid_argument", text)
        except DeerFlowError as error:
            await self._send(to_json(failure(command.id, error)))
            return
        begins = await first_seq(self._deerflow, self._thread_id, self._user, wanted.since)
        name = new_id()
        async with self._send_turn:
            await self._answer(command, {"subscription_id": name, "replayed_events": 0})
            asked = replace(wanted, since=begins)
            self._subscriptions[name] = _Subscription(asked, answered_at=self._sent_count)
            await self._restart_sender()

    async def _unsubscribe(self, command: Command) -> None:
        name = str(command.params.get("subscription_id"))
        if self._subscriptions.pop(name, None) is None:
            error = CommandError("no_such_subscription", f"Unknown subscription: {name[:80]}")
            await self._send(to_json(failure(command.id, error)))
            return
        async with self._send_turn:
            await self._answer(command, {})
            await self._restart_sender()

    async def _restart_sender(self) -> None:
        """Replay the events for all subscriptions; `_must_send` prevents duplicates."""
        await self._stop_sender()
        if self._subscriptions:
            self._sender = asyncio.create_task(self._deliver())

    async def _stop_sender(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
            self._sender = None

    async def _deliver(self) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # disconnected: serve() handles it
            try:
                await self._follow()
            except DeerFlowError as error:
                await self._send(to_json(failure(None, error)))

    async def _follow(self) -> None:
        subscriptions = list(self._subscriptions.values())
        union = EventFilter(
            channels=frozenset().union(*(each.wanted.channels for each in subscriptions)),
            since=min(each.wanted.since or 0 for each in subscriptions),
        )
        async with aclosing(follow_thread(self._deerflow, self._thread_id, self._user, union)) as batches:
            async for batch in batches:
                if any(event.ends_run for event in batch):
                    await self._wait_for_subscriptions()
                async with self._send_turn:
                    for event in batch:
                        if self._must_send(event, subscriptions):
                            self._remember(event.id, event.seq)
                            await self._send(event.json())

    async def _wait_for_subscriptions(self) -> None:
        remaining = self._commanded_at + _SUBSCRIBE_SECONDS - asyncio.get_running_loop().time()
        await asyncio.sleep(remaining)

    def _must_send(self, event: ProtocolEvent, subscriptions: list[_Subscription]) -> bool:
        """Return whether some subscription wants the event and cannot have received it.

        A live event is sent once, however many subscriptions want it; an event sent before the response to
        one of them is sent again.
        """
        sent_at = self._sent.get(event.id, -1)
        return any(sent_at < each.answered_at and each.wants(event) for each in subscriptions)

    def _remember(self, event_id: str, seq: int) -> None:
        self._sent[event_id] = self._sent_count
        self._sent.move_to_end(event_id)
        self._sent_count += 1
        self._last_seq = max(self._last_seq, seq)
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)

    async def _answer(self, command: Command, result: dict[str, Any]) -> None:
        meta = {"applied_through_seq": self._last_seq}
        answer = {"type": "success", "id": command.id, "result": result, "meta": meta}
        await self._send(to_json(answer))

    async def _send(self, body: bytes) -> None:
        async with self._sending:
            await self._socket.send_text(body.decode())


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise CommandError("invalid_argument", "Protocol commands must be valid JSON.") from error
