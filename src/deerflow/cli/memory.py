"""`deerflow memory`: shows and deletes memory, with or without a running server."""

import asyncio
from pathlib import Path
from typing import Any, Literal

import orjson
from rich.console import Console
from rich.table import Table

from deerflow.client import AsyncDeerFlowClient
from deerflow.domain.visible_text import printable
from deerflow.memory.base import HISTORY_SECTIONS, USER_SECTIONS
from deerflow.memory.rendering import TITLES


def execute(
    *,
    action: Literal["show", "forget", "clear"],
    agent: str | None,
    config: Path | None,
    fact_id: str = "",
    as_json: bool = False,
) -> int:
    """Execute the action on the memory in the configured database."""
    memory = asyncio.run(_execute(action, agent, config, fact_id))
    if as_json:
        print(orjson.dumps(memory, option=orjson.OPT_INDENT_2).decode())
    elif action == "show":
        _show(memory)
    else:
        print("Forgotten.")
    return 0


async def _execute(action: str, agent: str | None, config: Path | None, fact_id: str) -> dict[str, Any]:
    async with AsyncDeerFlowClient.open(config) as client:
        match action:
            case "forget":
                return await client.forget(fact_id, agent_name=agent)
            case "clear":
                return await client.clear_memory(agent_name=agent)
        return await client.memory(agent_name=agent)


def _show(memory: dict[str, Any]) -> None:
    console = Console(highlight=False, markup=False)
    sections = [(name, memory["user"][name]) for name in USER_SECTIONS]
    sections += [(name, memory["history"][name]) for name in HISTORY_SECTIONS]
    for name, section in sections:
        if section["summary"]:
            console.print(f"{TITLES[name]}: {printable(section['summary'])}")
    if not memory["facts"]:
        console.print("No facts are remembered.")
        return
    table = Table("id", "sure", "kind", "fact", box=None, pad_edge=False)
    for fact in memory["facts"]:
        words = (fact["id"], f"{fact['confidence']:.0%}", fact["category"], fact["content"])
        table.add_row(*map(printable, words))
    console.print(table)
