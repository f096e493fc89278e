"""Errors that the scripts of this skill share."""

import sys
from pathlib import Path
from typing import NoReturn

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements.txt"


def stop(message: str) -> NoReturn:
    """Say what was wrong and leave with exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def stop_missing(package: str) -> NoReturn:
    """Say which package is missing and how to get it."""
    stop(
        f"the Python package {package} is not installed. Run: pip install -r {REQUIREMENTS} "
        "(Debian's Python wants --break-system-packages or a venv; the operator may have to allow the "
        "network)"
    )
