"""Two workers against one on PostgreSQL: runs that mostly wait for their model, ten at once per worker.

Each side has a gateway of its own that executes nothing, and a schema of its own on the same server; both
take turns.
"""

import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.support.arena import LIGHT, Arena, free_port, open_arena, serving, working
from benchmarks.support.crowd import gateway_crowd
from benchmarks.support.report import promise
from tests.support.postgres import PostgresServer

AT_LEAST = 1.6
ROUNDS = 3
AT_ONCE = 10
RUNS = 60
TOKENS = 100
TEXT = f"go [[bench answer n={TOKENS} first=0 gap=20]]"


def main() -> int:
    with open_arena(**LIGHT) as arena, PostgresServer.running() as postgres, ExitStack() as stack:
        sides = {count: stack.enter_context(_cluster(arena, postgres, count)) for count in (1, 2)}
        for count, side in sides.items():
            gateway_crowd(side, TEXT, AT_ONCE * count, tokens=TOKENS)
        rounds = [
            {count: gateway_crowd(side, TEXT, RUNS, tokens=TOKENS) for count, side in sides.items()}
            for _ in range(ROUNDS)
        ]
    lost = sum(RUNS - crowd.complete for each in rounds for crowd in each.values())
    ratio = statistics.median(each[1].seconds / each[2].seconds for each in rounds)
    return promise(
        "workers",
        ratio=ratio if not lost else 0.0,
        at_least=AT_LEAST,
        one_runs_per_second=round(RUNS / statistics.median(each[1].seconds for each in rounds), 2),
        two_runs_per_second=round(RUNS / statistics.median(each[2].seconds for each in rounds), 2),
        incomplete_runs=lost,
        rounds=ROUNDS,
    )


@contextmanager
def _cluster(arena: Arena, postgres: PostgresServer, workers: int) -> Iterator[Arena]:
    """Run a gateway and so many workers on a schema of their own."""
    settings = postgres.settings(f"bench_{workers}")
    database = settings.model_dump(include={"backend", "postgres_url", "postgres_schema"})
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home, port = Path(folder), free_port()
        options = ("--concurrency", "0")
        server = stack.enter_context(
            serving(home, arena.model_url, port, options=options, database=database, **LIGHT)
        )
        for _ in range(workers):
            stack.enter_context(working(home, AT_ONCE))
        yield arena.beside(port, server.pid, home)


if __name__ == "__main__":
    sys.exit(main())
