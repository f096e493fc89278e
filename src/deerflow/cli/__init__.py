"""The command line: `deerflow run`, `serve`, `doctor` and more."""

from importlib import import_module

from deerflow.cli.startup import end_on_interrupt


def main() -> None:
    """Run the command line; it is imported here, where Ctrl-C already exits without a traceback."""
    with end_on_interrupt():
        import_module("deerflow.cli.commands").app()


__all__ = ["main"]
