"""20 to 200 runs at once, 100 streamed tokens each: the whole stack over HTTP against raw `create_agent`.

Both sides talk to the same model server, which takes 10 ms per token, and take turns; figures are medians
of the rounds. The raw agent has no HTTP server and no event log; the gateway's clients read everything.
"""

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.support.arena import LIGHT, Arena, free_port, open_arena, serving
from benchmarks.support.crowd import Crowd, gateway_crowd, raw_crowd
from benchmarks.support.report import promise

TOKENS = 100
TEXT = f"go [[bench answer n={TOKENS} first=0 gap=10]]"
ROUNDS = {20: 5, 50: 5, 100: 3, 200: 3}
AT_LEAST = {20: 0.0, 50: 1.2, 100: 0.0, 200: 1.5}
"""Times raw's runs per second; levels without a promise are measured for the other promises."""
SDK_LEVELS = (50, 200)
AT_LEAST_WITH_SDK = 0.8
FLAT_LEVEL, FLAT_ROUNDS = 200, 8
AT_MOST_GROWTH = 1.1
"""Of the memory after the first of these rounds."""

Side = Callable[[int], Crowd]


def main() -> int:
    with open_arena(**LIGHT) as arena, tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with serving(Path(folder), arena.model_url, port, models=[_sdk_model(arena)], **LIGHT) as process:
            missed = _measure(arena, arena.beside(port, process.pid, Path(folder)))
        return missed | _is_flat(arena)


def _sdk_model(arena: Arena) -> dict[str, Any]:
    entry = {"name": "bench", "use": "langchain_openai:ChatOpenAI", "model": "bench", "transport": "sdk"}
    return {**entry, "base_url": arena.model_url, "api_key": "sk-bench"}


def _measure(arena: Arena, with_sdk: Arena) -> int:
    sides: dict[str, Side] = {
        "raw": lambda runs: raw_crowd(arena, TEXT, runs, tokens=TOKENS),
        "ours": lambda runs: gateway_crowd(arena, TEXT, runs, tokens=TOKENS),
        "sdk": lambda runs: gateway_crowd(with_sdk, TEXT, runs, tokens=TOKENS),
    }
    for side in sides.values():
        side(max(ROUNDS) // 4)
    missed = 0
    for runs, rounds in ROUNDS.items():
        chosen = [name for name in sides if name != "sdk" or runs in SDK_LEVELS]
        crowds: dict[str, list[Crowd]] = {name: [] for name in chosen}
        for _ in range(rounds):
            for name in chosen:
                crowds[name].append(sides[name](runs))
        missed |= _throughput("concurrency", runs, crowds["ours"], crowds["raw"], AT_LEAST[runs])
        missed |= _first_token(runs, crowds["ours"], crowds["raw"])
        if "sdk" in chosen:
            missed |= _throughput("concurrency_sdk", runs, crowds["sdk"], crowds["raw"], AT_LEAST_WITH_SDK)
    return missed


def _throughput(name: str, runs: int, ours: Sequence[Crowd], raw: Sequence[Crowd], at_least: float) -> int:
    """Report runs per second; a run that failed or lost a token is no run, and breaks the promise."""
    lost = sum(runs - crowd.complete for crowd in ours)
    ratio = _middle(base.seconds / mine.seconds for mine, base in zip(ours, raw, strict=True))
    return promise(
        f"{name}_{runs}",
        ratio=ratio if not lost else 0.0,
        at_least=at_least,
        runs_per_second=round(runs / _middle(crowd.seconds for crowd in ours), 1),
        raw_runs_per_second=round(runs / _middle(crowd.seconds for crowd in raw), 1),
        cpu_ms_per_run=round(_middle(crowd.cpu_seconds for crowd in ours) / runs * 1000, 1),
        raw_cpu_ms_per_run=round(_middle(crowd.cpu_seconds for crowd in raw) / runs * 1000, 1),
        incomplete_runs=lost,
        rounds=len(ours),
    )


def _first_token(runs: int, ours: Sequence[Crowd], raw: Sequence[Crowd]) -> int:
    return promise(
        f"concurrency_first_token_{runs}",
        ratio=_middle(mine.p95() / base.p95() for mine, base in zip(ours, raw, strict=True)),
        at_most=1.0,
        p95_ms=round(_middle(crowd.p95() for crowd in ours) * 1000, 1),
        raw_p95_ms=round(_middle(crowd.p95() for crowd in raw) * 1000, 1),
        rounds=len(ours),
    )


def _is_flat(arena: Arena) -> int:
    server, megabytes = psutil.Process(arena.server_pid), []
    for _ in range(FLAT_ROUNDS):
        gateway_crowd(arena, TEXT, FLAT_LEVEL, tokens=TOKENS)
        megabytes.append(round(server.memory_info().rss / 1e6, 1))
    return promise(
        "concurrency_memory",
        ratio=megabytes[-1] / megabytes[0],
        at_most=AT_MOST_GROWTH,
        megabytes=megabytes,
        runs=FLAT_LEVEL * FLAT_ROUNDS,
    )


def _middle(values: Any) -> float:
    return float(statistics.median(values))


if __name__ == "__main__":
    sys.exit(main())
