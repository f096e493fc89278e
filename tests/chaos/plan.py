"""What goes wrong and when, drawn from a seed: the same seed is the same plan."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a process is hurt."""

    KILL = "kill -9"
    STOP = "SIGSTOP"
    """Stopped for a while, then continued: it wakes up believing that no time has passed."""
    TERMINATE = "SIGTERM"


WEIGHTS: Mapping[Kind, int] = {Kind.KILL: 5, Kind.STOP: 4, Kind.TERMINATE: 1}


@dataclass(frozen=True, slots=True)
class Fault:
    """One blow."""

    pause: float
    """Seconds since the one before."""
    kind: Kind
    target: str
    seconds: float
    """How long the target stays stopped, or down before it is started again."""

    def __str__(self) -> str:
        return f"+{self.pause:.2f}s {self.kind} {self.target} for {self.seconds:.2f}s"


@dataclass(frozen=True, slots=True)
class Target:
    """Something that can be hurt, and how."""

    name: str
    kinds: Sequence[Kind] = tuple(Kind)
    weight: int = 1
    longest_stop: float = 1.5


def plan_faults(seed: int, targets: Sequence[Target], count: int) -> list[Fault]:
    """Return `count` faults for these targets."""
    luck = random.Random(f"faults {seed}")
    return [_fault(luck, targets) for _ in range(count)]


def _fault(luck: random.Random, targets: Sequence[Target]) -> Fault:
    (target,) = luck.choices(targets, [target.weight for target in targets])
    (kind,) = luck.choices(target.kinds, [WEIGHTS[kind] for kind in target.kinds])
    longest = target.longest_stop if kind is Kind.STOP else 0.3
    # Mostly soon after each other: what is hurt while it recovers is where the mistakes are.
    pause = luck.choice((luck.uniform(0.0, 0.4), luck.uniform(0.2, 1.5)))
    return Fault(pause, kind, target.name, luck.uniform(0.0, longest))
