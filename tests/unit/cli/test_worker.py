"""`deerflow worker`, and a server that leaves its runs to workers."""

from pathlib import Path
from typing import Any

import pytest
from support.gateway import write_config


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("worker",), "a worker shares the runs of other processes"),
        (("serve", "--port", "0", "--concurrency", "0"), "--concurrency 0 leaves all runs to workers"),
    ],
)
def test_sharing_runs_needs_a_database_that_can_be_shared(
    deerflow: Any, home: Path, words: tuple[str, ...], said: str
) -> None:
    config = write_config(home, None)

    result = deerflow(*words, "--config", str(config))

    assert result.exit_code == 1
    assert said in result.output
    assert "database.backend 'sqlite' is for one process" in result.output
    assert "set database.backend to 'postgres'" in result.output


@pytest.mark.parametrize("words", [("worker", "--concurrency", "0"), ("serve", "--concurrency", "-1")])
def test_a_number_of_runs_that_makes_no_sense_is_refused(deerflow: Any, words: tuple[str, ...]) -> None:
    result = deerflow(*words)

    assert result.exit_code == 2
    assert "--concurrency" in result.output


def test_help_says_how_a_worker_stops(deerflow: Any) -> None:
    result = deerflow("worker", "--help")

    assert result.exit_code == 0
    assert "--concurrency" in result.output
    assert "SIGTERM" in result.output
