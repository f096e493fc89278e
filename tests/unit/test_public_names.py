"""The names that programs import from `deerflow` are a promise."""

import subprocess
import sys
from importlib import import_module

import pytest

import deerflow

NAMES = ["AsyncDeerFlowClient", "DeerFlow", "DeerFlowClient", "DeerFlowError", "Settings", "StreamEvent"]


def test_the_public_names_are_these() -> None:
    assert deerflow.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there(name: str) -> None:
    found = getattr(deerflow, name)

    assert found.__name__ == name
    assert getattr(import_module(found.__module__), name) is found


def test_an_unknown_name_is_missing_as_usual() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Moose'"):
        deerflow.Moose  # noqa: B018


def test_importing_deerflow_loads_nothing_heavy() -> None:
    code = "import sys, deerflow; print({'langchain', 'langgraph', 'fastapi'} & set(sys.modules))"

    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "set()"
