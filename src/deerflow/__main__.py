"""`python -m deerflow` is the command line."""

from deerflow.cli import main

main()
