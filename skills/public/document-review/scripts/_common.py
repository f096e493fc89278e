"""Errors that the scripts of this skill share."""

import sys
from pathlib import Path
from typing import NoReturn

SKILL = Path(__file__).resolve().parents[1]
REQUIREMENTS = SKILL / "requirements.txt"

sys.path.append(str(SKILL.parent / ".packages"))  # where `make skills` puts packages for all shipped skills


def stop(message: str) -> NoReturn:
    """Say what was wrong and leave with exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def stop_missing(package: str) -> NoReturn:
    """Say which package is missing and how to get it."""
    stop(
        f"the Python package {package} is not installed. Run: python3 -m pip install --break-system-packages "
        f"-r {REQUIREMENTS} (this needs the network; without it, the operator runs `make skills` once)"
    )
