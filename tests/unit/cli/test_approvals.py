"""`deerflow approvals`: what was allowed for good, in the terminal."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.gateway import write_config

from deerflow.agents.allowed_calls import AllowedCall, AllowedCalls, Scope
from deerflow.cli.approvals import Row, age, find, short_ids
from deerflow.client import AsyncDeerFlowClient
from deerflow.domain import DEFAULT_USER
from deerflow.errors import InvalidInputError, NotFoundError


async def allow(config: Path, *calls: tuple[str, dict[str, Any], str, Scope, str]) -> list[str]:
    """Allow calls as an approval does; return their ids."""
    async with AsyncDeerFlowClient.open(config) as client:
        storage = client.deerflow.storage
        await storage.threads.create("t2", DEFAULT_USER, {})
        await storage.threads.update("t2", title="Release \x1b[31mnotes")
        allowed = AllowedCalls(storage.store, DEFAULT_USER)
        return [
            (await allowed.allow(tool, args, call_hash=call_hash, scope=scope, thread_id=thread)).id
            for tool, args, call_hash, scope, thread in calls
        ]


HOSTILE = {"description": "d", "command": "echo [red]on[/red] \x1b[31m\u202egpj\nrm x"}
FETCH = {"url": "https://example.org", "max": 5, "description": "d"}


def test_allowed_calls_are_listed_and_taken_back(deerflow: Any, home: Path) -> None:
    config = write_config(home, None)
    always, here, there = asyncio.run(
        allow(
            config,
            ("bash", HOSTILE, "1" * 64, "always", "t1"),
            ("web_fetch", FETCH, "2" * 64, "thread", "t2"),
            ("web_fetch", FETCH, "2" * 64, "thread", "t3"),
        )
    )

    before = deerflow("approvals", "list", "--config", config)
    rows = json.loads(deerflow("approvals", "list", "--json", "--config", config).stdout)
    short = {row["id"]: row["short_id"] for row in rows}
    revoked = deerflow("approvals", "revoke", short[here][:7], "--config", config)
    by_full_id = deerflow("approvals", "revoke", always, "--config", config)
    after = deerflow("approvals", "list", "--config", config)
    again = deerflow("approvals", "revoke", short[here], "--config", config)
    deerflow("approvals", "revoke", short[there], "--config", config)
    empty = deerflow("approvals", "list", "--config", config)

    titles, newest, middle, oldest, hint = before.stdout.splitlines()
    assert titles.split() == ["id", "age", "runs", "unasked", "tool", "call"]
    call = "web_fetch  max=5  url=https://example.org"
    assert " ".join(newest.split()) == " ".join(f"{short[there]} now in t3 {call}".split())
    assert f"in Release \\x1b[31mnotes  {call}" in middle
    assert oldest.startswith(f"{short[always]}  now  in all threads ")
    assert oldest.endswith("bash       echo [red]on[/red] \\x1b[31m\\u202egpj ⏎ rm x")
    assert hint.startswith("Take one back with: deerflow approvals revoke ID")
    assert {len(each) for each in short.values()} == {8}
    assert (json.loads(rows[2]["args"]), rows[1]["thread_title"]) == (HOSTILE, "Release \x1b[31mnotes")
    assert (revoked.exit_code, by_full_id.exit_code) == (0, 0), revoked.output
    assert revoked.stdout.startswith("Taken back, it is asked about again: max=5")
    assert [each in after.stdout for each in short.values()] == [True, False, False]
    assert again.exit_code == 1
    assert f"'{short[here]}' not found; there are: {short[there]}" in again.output
    assert (empty.exit_code, empty.stdout.startswith("Nothing is allowed for good")) == (0, True)


def row(short_id: str) -> Row:
    allowed = AllowedCall(f"full-{short_id}", "bash", "{}", "always", "t1", "2026-01-01T00:00:00+00:00")
    return Row(short_id, allowed, "")


def test_the_beginning_of_an_id_must_mean_one_call() -> None:
    rows = [row("abc1"), row("abd2")]

    assert find(rows, "abd").short_id == "abd2"
    with pytest.raises(InvalidInputError, match="2 allowed calls begin with 'ab': abc1, abd2"):
        find(rows, "ab")
    for nothing in ("", "x", "full"):
        with pytest.raises(NotFoundError):
            find(rows, nothing)


def test_short_ids_are_long_enough_to_differ() -> None:
    ids = [str(number) for number in range(100_000)]

    short = short_ids(ids)

    assert len(set(short.values())) == len(ids)
    assert {len(each) for each in short.values()} == {9}
    assert {len(each) for each in short_ids(ids[:10]).values()} == {8}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "now"), (59, "now"), (60, "1 min"), (3599, "59 min"), (7200, "2 h"), (2e5, "2 d")],
)
def test_the_age_is_said_in_its_largest_unit(seconds: float, said: str) -> None:
    now = datetime(2026, 11, 18, tzinfo=UTC)

    assert age((now - timedelta(seconds=seconds)).isoformat(), now) == said
