"""Entry point of `python -m deerflow`, equivalent to the `deerflow` command."""

from deerflow.cli import main

main()
