"""A thread of a hundred turns: what each adds to the database, and whether the last is slower than the first.

Turns 91 to 100 of an old thread take turns with turns 1 to 10 of a new one, so that both see the same
machine. What was said are the bytes of the questions and the answers.
"""

import statistics
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.support.arena import LIGHT, Arena, open_arena
from benchmarks.support.report import promise

TURNS, COMPARED = 100, 10
ROUNDS = 3
ANSWERS = {"short": 10, "long": 200}
"""Tokens of an answer."""
PLAIN_BYTES = 12 * 1024
AT_MOST_LAST = 1.3
SETTLE_SECONDS = 1.0


@dataclass(slots=True)
class Conversation:
    """One thread and the times of its turns."""

    arena: Arena
    tokens: int
    thread: str = field(default_factory=lambda: str(uuid.uuid4()))
    said: int = 0

    def turn(self) -> float:
        """Say something and return the seconds to the end of the answer."""
        question = f"And then? [[bench answer n={self.tokens} first=0 gap=0]]"
        answer = "".join(f"zq{number} " for number in range(self.tokens))
        self.said += len(question) + len(answer)
        (timing,) = self.arena.gateway(question, 1, thread=self.thread)
        return timing.total


def main() -> int:
    missed = 0
    for name, tokens in ANSWERS.items():
        with open_arena(**LIGHT) as arena:
            missed |= _measure(name, arena, tokens)
    return missed


def _measure(name: str, arena: Arena, tokens: int) -> int:
    warm = Conversation(arena, tokens)
    for _ in range(COMPARED * 2):
        warm.turn()
    before = _settled_size(arena.home)
    firsts: list[float] = []
    lasts: list[float] = []
    said = turns = 0
    for _ in range(ROUNDS):
        old, new = Conversation(arena, tokens), Conversation(arena, tokens)
        for _ in range(TURNS - COMPARED):
            old.turn()
        for _ in range(COMPARED):
            firsts.append(new.turn())
            lasts.append(old.turn())
        said += old.said + new.said
        turns += TURNS + COMPARED
    grown = _settled_size(arena.home) - before
    missed = promise(
        f"history_growth_{name}",
        ratio=grown / (turns * PLAIN_BYTES + 2 * said),
        at_most=1.0,
        bytes_per_turn=round(grown / turns),
        said_per_turn=round(said / turns),
        turns=turns,
    )
    return missed | promise(
        f"history_last_turn_{name}",
        ratio=statistics.median(last / first for first, last in zip(firsts, lasts, strict=True)),
        at_most=AT_MOST_LAST,
        first_turns_ms=round(statistics.median(firsts) * 1000, 1),
        last_turns_ms=round(statistics.median(lasts) * 1000, 1),
        rounds=ROUNDS,
    )


def _settled_size(home: Path) -> int:
    """Return the bytes of the database and its write-ahead log, once what waits is written."""
    time.sleep(SETTLE_SECONDS)
    return sum(path.stat().st_size for path in home.rglob("*.db*") if not path.name.endswith("-shm"))


if __name__ == "__main__":
    sys.exit(main())
