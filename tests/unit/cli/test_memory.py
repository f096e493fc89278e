"""`deerflow memory`: what is remembered, in the terminal."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.gateway import write_config

from deerflow import DeerFlowClient
from deerflow.errors import InvalidInputError, NotFoundError


@pytest.fixture
def config(home: Path) -> Path:
    return write_config(home, None, memory={"enabled": True})


def remembered(config: Path, *contents: str) -> list[str]:
    """Remember these, and return their ids."""
    with DeerFlowClient(config) as client:
        return [client.remember(content)["id"] for content in contents]


def test_facts_are_shown_and_forgotten(deerflow: Any, config: Path) -> None:
    tea, _ = remembered(config, "Likes [red]tea[/red].", "Has a dog.")

    before = deerflow("memory", "show", "--config", str(config))
    forgotten = deerflow("memory", "forget", tea, "--config", str(config))
    after = json.loads(deerflow("memory", "show", "--json", "--config", str(config)).stdout)

    assert tea in before.stdout
    assert "Likes [red]tea[/red]." in before.stdout
    assert (forgotten.exit_code, forgotten.stdout.strip()) == (0, "Forgotten.")
    assert [fact["content"] for fact in after["facts"]] == ["Has a dog."]


def test_all_is_forgotten_when_one_agrees(deerflow: Any, config: Path) -> None:
    remembered(config, "Likes tea.")

    refused = deerflow("memory", "clear", "--config", str(config), input="n\n")
    kept = deerflow("memory", "show", "--config", str(config))
    done = deerflow("memory", "clear", "--yes", "--config", str(config))
    gone = deerflow("memory", "show", "--config", str(config))

    assert (refused.exit_code, done.exit_code) == (1, 0)
    assert "Likes tea." in kept.stdout
    assert "No facts are remembered." in gone.stdout


def test_an_unknown_fact_is_an_error_in_one_line(deerflow: Any, config: Path) -> None:
    result = deerflow("memory", "forget", "fact_none", "--config", str(config))

    assert (result.exit_code, "fact 'fact_none' not found" in result.output) == (1, True)


def test_programs_see_the_same_memory(config: Path) -> None:
    with DeerFlowClient(config) as client:
        fact = client.remember("Likes tea.", category="preference", confidence=0.9)
        of_agent = client.memory(agent_name="cook")
        with pytest.raises(InvalidInputError):
            client.remember("Likes cake.", confidence=2)
        with pytest.raises(NotFoundError):
            client.forget("fact_none")
        left = client.forget(fact["id"])
        client.remember("Has a dog.")
        cleared = client.clear_memory()

    assert (fact["category"], fact["confidence"]) == ("preference", 0.9)
    assert (of_agent["facts"], left["facts"], cleared["facts"]) == ([], [], [])
