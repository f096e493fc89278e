"""Cold start of `deerflow serve` to healthy against importing LangChain alone, and its memory when idle."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.support.arena import LIGHT, free_port, serving
from benchmarks.support.report import promise

AT_MOST = 2.5
AT_MOST_MB = 180
ROUNDS = 5
IMPORTS = "import langchain.agents, langchain_openai"
SETTLE_SECONDS = 3


def import_seconds() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, capture_output=True)
    return time.perf_counter() - started


def start_seconds() -> tuple[float, float]:
    """Return the seconds to healthy and the megabytes some time after."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        with serving(Path(folder), "http://127.0.0.1:9/v1", free_port(), **LIGHT) as process:
            seconds = time.perf_counter() - started
            time.sleep(SETTLE_SECONDS)
            return seconds, psutil.Process(process.pid).memory_info().rss / 1e6


def main() -> int:
    import_seconds()
    base, ours, memory = [], [], []
    for _ in range(ROUNDS):
        base.append(import_seconds())
        seconds, megabytes = start_seconds()
        ours.append(seconds)
        memory.append(megabytes)
    ratio = statistics.median(mine / other for mine, other in zip(ours, base, strict=True))
    missed = promise(
        "start",
        ratio=ratio,
        at_most=AT_MOST,
        healthy_seconds=round(statistics.median(ours), 2),
        import_seconds=round(statistics.median(base), 2),
        rounds=ROUNDS,
    )
    idle = statistics.median(memory)
    return missed | promise("idle_memory", ratio=idle / AT_MOST_MB, at_most=1.0, megabytes=round(idle, 1))


if __name__ == "__main__":
    sys.exit(main())
