"""Stores tool calls that a user allowed permanently: in one thread, or in all of the user's threads.

A permission covers exactly one call, a tool with its arguments; any other call needs approval again. It is
kept in the store, in a namespace that the store's routes cannot reach. It is read before every approval
request, so a revocation takes effect at once.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import orjson
from langgraph.store.base import BaseStore

from deerflow.domain import folder_name
from deerflow.errors import NotFoundError

Scope = Literal["thread", "always"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
MAX_SHOWN_CHARS = 4000
_ROOT = "allowed-calls"
_PAGE = 500


@dataclass(frozen=True, slots=True)
class AllowedCall:
    """One call that runs without approval."""

    id: str
    tool: str
    args: str
    """The arguments as JSON, for display; calls are matched by the hash in the id."""
    scope: Scope
    thread_id: str
    """The thread in which it was allowed; with the scope `thread` it is valid only there."""
    created_at: str


class AllowedCalls:
    """The permissions of one user."""

    def __init__(self, store: BaseStore, user_id: str) -> None:
        self._store = store
        self._namespace = (_ROOT, folder_name(user_id))

    async def allow(
        self, tool: str, args: Mapping[str, Any], *, call_hash: str, scope: Scope, thread_id: str
    ) -> AllowedCall:
        """Let calls with this hash run without approval from now on."""
        text = orjson.dumps(args, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str).decode()
        shown = text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
        allowed = AllowedCall(
            id=_key(call_hash, scope, thread_id),
            tool=tool,
            args=shown,
            scope=scope,
            thread_id=thread_id,
            created_at=datetime.now(UTC).isoformat(),
        )
        await self._store.aput(self._namespace, allowed.id, asdict(allowed), index=False)
        return allowed

    async def find(self, call_hash: str, thread_id: str) -> AllowedCall | None:
        """Return the permission for a call in a thread, or None."""
        for scope in SCOPES:
            item = await self._store.aget(self._namespace, _key(call_hash, scope, thread_id))
            if item is not None:
                return AllowedCall(**item.value)
        return None

    async def all(self) -> list[AllowedCall]:
        """Return every permission, newest first."""
        found: list[AllowedCall] = []
        while items := await self._store.asearch(self._namespace, limit=_PAGE, offset=len(found)):
            found += [AllowedCall(**item.value) for item in items]
        return sorted(found, key=lambda allowed: allowed.created_at, reverse=True)

    async def revoke(self, allowed_id: str) -> None:
        """Delete a permission: the call needs approval again."""
        if await self._store.aget(self._namespace, allowed_id) is None:
            raise NotFoundError("allowed call", allowed_id)
        await self._store.adelete(self._namespace, allowed_id)

    async def forget_thread(self, thread_id: str) -> None:
        """Delete the permissions whose scope is this thread."""
        wanted = {"thread_id": thread_id, "scope": "thread"}
        while items := await self._store.asearch(self._namespace, filter=wanted, limit=_PAGE):
            for item in items:
                await self._store.adelete(self._namespace, item.key)


def _key(call_hash: str, scope: Scope, thread_id: str) -> str:
    return call_hash if scope == "always" else f"{call_hash}:{thread_id}"
