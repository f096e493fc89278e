"""A command line that is called inside this process, in a home of its own."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deerflow.cli.commands import app

Deerflow = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "DEER_FLOW_CONFIG_PATH",
        "DEER_FLOW_AUTH_DISABLED",
        "GATEWAY_CORS_ORIGINS",
        "GATEWAY_TRUSTED_PROXIES",
        "OPENAI_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DEER_FLOW_HOME", str(tmp_path / ".deer-flow"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def deerflow(home: Path) -> Iterator[Deerflow]:
    """Return `deerflow WORDS…`; logging is put back afterwards: its stream is gone, others test on."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    runner = CliRunner()
    yield lambda *words, **more: runner.invoke(app, list(map(str, words)), **more)
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
    root.setLevel(level)
    for name in ("deerflow.memory", "deerflow.agents.middlewares.model_errors"):
        logging.getLogger(name).setLevel(logging.NOTSET)
