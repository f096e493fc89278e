"""What an agent of another program does and answers, in our words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class AcpProgress:
    """One thing that an agent did."""

    kind: Literal["message", "tool_call", "plan", "permission"]
    text: str
    status: str | None = None


Watch = Callable[[AcpProgress], None]
"""Hears of an agent's progress as it happens."""


@dataclass(frozen=True, slots=True)
class AcpAnswer:
    """What an agent answered."""

    text: str
    stop_reason: str
    refused: tuple[str, ...] = ()
    """What it asked permission for in vain."""
