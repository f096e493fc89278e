"""One WebSocket of the thread protocol: commands up, answers and events down."""

import asyncio
import contextlib
from collections import OrderedDict
from contextlib import aclosing
from typing import Any

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from deerflow.app import DeerFlow
from deerflow.domain import new_id
from deerflow.errors import DeerFlowError
from deerflow.gateway.protocol.commands import Command, Commander, CommandError, failure, parse_command
from deerflow.gateway.protocol.feed import Arrivals, ThreadFeed
from deerflow.gateway.protocol.filters import EventFilter, parse_filter
from deerflow.runtime import to_json

_MOST_SUBSCRIPTIONS = 64
_REMEMBERED = 4096


class ThreadSocket:
    """Serves one connection until either side leaves."""

    def __init__(
        self, socket: WebSocket, house: DeerFlow, arrivals: Arrivals, thread_id: str, user: str
    ) -> None:
        self._socket = socket
        self._house = house
        self._arrivals = arrivals
        self._thread_id = thread_id
        self._user = user
        self._commander = Commander(house, arrivals, thread_id, user)
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        self._sending = asyncio.Lock()
        self._sent: OrderedDict[str, int] = OrderedDict()
        self._sent_count = 0
        self._last_seq = 0

    async def serve(self) -> None:
        """Answer commands, and deliver what was subscribed to, until the client leaves."""
        try:
            while True:
                frame = await self._socket.receive()
                if frame["type"] == "websocket.disconnect":
                    return
                await self._take(frame.get("text"))
        except WebSocketDisconnect:
            return
        finally:
            tasks = list(self._subscriptions.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, text: str | None) -> None:
        try:
            if text is None:
                raise CommandError("invalid_argument", "Protocol commands must be text, not bytes.")
            body = _parsed(text)
            command = parse_command(body)
        except CommandError as error:
            await self._send(to_json(failure(None, error)))
            return
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
        subscription = new_id()
        await self._answer(command, {"subscription_id": subscription, "replayed_events": 0})
        # Counted after the answer: what went out before it, the client could not yet give to this one.
        follow = self._deliver(wanted, answered_at=self._sent_count)
        self._subscriptions[subscription] = asyncio.create_task(follow)

    async def _unsubscribe(self, command: Command) -> None:
        name = str(command.params.get("subscription_id"))
        task = self._subscriptions.pop(name, None)
        if task is None:
            error = CommandError("no_such_subscription", f"Unknown subscription: {name[:80]}")
            await self._send(to_json(failure(command.id, error)))
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._answer(command, {})

    async def _deliver(self, wanted: EventFilter, *, answered_at: int) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the client is gone: serve() sees it
            try:
                await self._follow(wanted, answered_at)
            except DeerFlowError as error:
                await self._send(to_json(failure(None, error)))

    async def _follow(self, wanted: EventFilter, answered_at: int) -> None:
        feed = ThreadFeed(self._house, self._arrivals, self._thread_id, self._user)
        async with aclosing(feed.follow(wanted)) as batches:
            async for batch in batches:
                for event in batch:
                    # What happens now goes out once, however many subscriptions want it; what went out
                    # before this one was answered goes out again.
                    if self._sent.get(event.id, -1) < answered_at:
                        self._remember(event.id, event.seq)
                        await self._send(event.json())

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
