"""Runs the benchmarks that are named, or all of them."""

import sys
from importlib import import_module

ALL = (
    "one_turn",
    "tool_steps",
    "fanout",
    "concurrency",
    "history",
    "workers",
    "long_thread",
    "start",
    "sandbox",
    "skills",
    "web_tools",
    "recall",
)


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(ALL))
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    missed = [name for name in names or ALL if import_module(f"benchmarks.{name}").main() != 0]
    return 1 if missed else 0  # each line says whether its bound was kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
