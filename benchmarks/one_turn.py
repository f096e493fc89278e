"""One turn without tools: time to the first token, full stack over HTTP against raw `create_agent`.

The server has the default settings: the isolated sandbox, and memory.
"""

import statistics
import sys

from benchmarks.support.arena import open_arena
from benchmarks.support.report import promise

AT_MOST = 1.3
ROUNDS = 7
RUNS = 10
TEXT = "hello [[bench answer n=10 first=0 gap=0]]"


def main() -> int:
    with open_arena() as arena:
        arena.raw(TEXT, 5)
        arena.gateway(TEXT, 5)
        raw, ours = [], []
        for _ in range(ROUNDS):
            raw.append(statistics.median(timing.first for timing in arena.raw(TEXT, RUNS)))
            ours.append(statistics.median(timing.first for timing in arena.gateway(TEXT, RUNS)))
    ratio = statistics.median(mine / base for mine, base in zip(ours, raw, strict=True))
    return promise(
        "one_turn",
        ratio=ratio,
        at_most=AT_MOST,
        first_token_ms=round(statistics.median(ours) * 1000, 2),
        raw_first_token_ms=round(statistics.median(raw) * 1000, 2),
        rounds=ROUNDS,
    )


if __name__ == "__main__":
    sys.exit(main())
