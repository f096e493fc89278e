"""`python -m deerflow` is the command line, as `deerflow` is."""

from deerflow.cli import main

main()
