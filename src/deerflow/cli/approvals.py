"""`deerflow approvals`: lists and revokes permanently allowed calls, with or without a running server."""

import asyncio
from pathlib import Path
from typing import Literal

from rich.console import Console

from deerflow.agents.allowed_calls import AllowedCall, AllowedCalls
from deerflow.client import AsyncDeerFlowClient
from deerflow.domain import DEFAULT_USER
from deerflow.domain.visible_text import visible


def execute(*, action: Literal["list", "revoke"], config: Path | None, allowed_id: str = "") -> int:
    """Execute the action on the allowed calls in the configured database."""
    allowed = asyncio.run(_execute(action, config, allowed_id))
    if action == "revoke":
        print("Taken back: it is asked about again.")
    else:
        _show(allowed)
    return 0


async def _execute(action: str, config: Path | None, allowed_id: str) -> list[AllowedCall]:
    async with AsyncDeerFlowClient.open(config) as client:
        calls = AllowedCalls(client.deerflow.storage.store, DEFAULT_USER)
        if action == "revoke":
            await calls.revoke(allowed_id)
        return await calls.all()


def _show(allowed: list[AllowedCall]) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not allowed:
        console.print("Nothing is allowed for good: every call that needs an approval is asked about.")
    for each in allowed:
        where = "in all threads" if each.scope == "always" else f"in thread {each.thread_id}"
        console.print(f"{each.tool}  {where}, since {each.created_at[:16]}\n  {visible(each.args)}")
        console.print(f"  take back: deerflow approvals revoke {each.id}")
