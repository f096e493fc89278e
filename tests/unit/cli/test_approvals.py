"""`deerflow approvals`: what was allowed for good, in the terminal."""

import asyncio
from pathlib import Path
from typing import Any

from support.gateway import write_config

from deerflow.agents.allowed_calls import AllowedCalls
from deerflow.client import AsyncDeerFlowClient
from deerflow.domain import DEFAULT_USER


async def allow(config: Path) -> tuple[str, str]:
    """Allow a call in all threads and one in a single thread, as an approval does; return their ids."""
    async with AsyncDeerFlowClient.open(config) as client:
        calls = AllowedCalls(client.deerflow.storage.store, DEFAULT_USER)
        hostile = {"command": "echo [red]on[/red] \x1b[31m\u202egpj"}
        always = await calls.allow("bash", hostile, call_hash="1" * 64, scope="always", thread_id="t1")
        here = await calls.allow(
            "web_fetch", {"url": "x"}, call_hash="2" * 64, scope="thread", thread_id="t2"
        )
    return always.id, here.id


def test_allowed_calls_are_listed_and_taken_back(deerflow: Any, home: Path) -> None:
    config = write_config(home, None)
    always, here = asyncio.run(allow(config))

    before = deerflow("approvals", "list", "--config", config)
    revoked = deerflow("approvals", "revoke", always, "--config", config)
    after = deerflow("approvals", "list", "--config", config)
    again = deerflow("approvals", "revoke", always, "--config", config)
    deerflow("approvals", "revoke", here, "--config", config)
    empty = deerflow("approvals", "list", "--config", config)

    newest, _, take_back, oldest, shown, _ = before.stdout.splitlines()
    assert newest.startswith("web_fetch  in thread t2, since ")
    assert take_back.strip() == f"take back: deerflow approvals revoke {here}"
    assert oldest.startswith("bash  in all threads, since ")
    assert "echo [red]on[/red]" in shown
    assert not {"\x1b", "\u202e"} & set(shown), "what a call says cannot change how it looks"
    assert (revoked.exit_code, revoked.stdout) == (0, "Taken back: it is asked about again.\n")
    assert (always in after.stdout, here in after.stdout) == (False, True)
    assert again.exit_code == 1
    assert f"'{always}' not found" in again.output
    assert (empty.exit_code, empty.stdout.startswith("Nothing is allowed for good")) == (0, True)
