"""Twenty tool calls in a row: time per step, full stack over HTTP against raw `create_agent`.

The server has the default settings: the isolated sandbox, and memory.
"""

import statistics
import sys

from benchmarks.support.arena import Timing, open_arena
from benchmarks.support.report import promise

AT_MOST = 1.0
ROUNDS = 5
RUNS = 3
STEPS = 20
TEXT = f"do it [[bench tools k={STEPS} n=10]]"


def per_step(timings: list[Timing]) -> float:
    return statistics.median(timing.total for timing in timings) / (STEPS + 1)


def main() -> int:
    with open_arena() as arena:
        arena.raw(TEXT, 1)
        arena.gateway(TEXT, 1)
        raw, ours = [], []
        for _ in range(ROUNDS):
            raw.append(per_step(arena.raw(TEXT, RUNS)))
            ours.append(per_step(arena.gateway(TEXT, RUNS)))
    ratio = statistics.median(mine / base for mine, base in zip(ours, raw, strict=True))
    return promise(
        "tool_steps",
        ratio=ratio,
        at_most=AT_MOST,
        step_ms=round(statistics.median(ours) * 1000, 2),
        raw_step_ms=round(statistics.median(raw) * 1000, 2),
        rounds=ROUNDS,
    )


if __name__ == "__main__":
    sys.exit(main())
