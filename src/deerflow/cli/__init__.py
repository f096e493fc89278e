"""The command line: `deerflow run`, `serve`, `doctor`."""

from deerflow.cli.main import main

__all__ = ["main"]
