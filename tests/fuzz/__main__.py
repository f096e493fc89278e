"""Tries one target after the other with ever new seeds for a while; see `make fuzz`.

Each line names the seed; a failure shows what failed and the command that plays it again.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Return 1 when some target failed."""
    known = sorted(file.stem.removeprefix("test_") for file in HERE.glob("test_*.py"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*known, []], help="all when none is named")
    parser.add_argument("--seconds", type=float, default=60, help="how long each target is tried")
    parser.add_argument("--examples", type=int, default=500, help="inputs for each seed")
    options = parser.parse_args()
    failed = [
        target
        for target in options.targets or known
        if not _tried(target, seconds=options.seconds, examples=options.examples)
    ]
    print(f"failed: {', '.join(failed)}" if failed else "nothing found")
    return 1 if failed else 0


def _tried(target: str, *, seconds: float, examples: int) -> bool:
    """Try a target until its time is up; the seed that is in work then is finished."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seed = random.SystemRandom().randrange(2**32)
        if not _passes(target, seed, examples):
            return False
    return True


def _passes(target: str, seed: int, examples: int) -> bool:
    words = [
        "-m",
        "pytest",
        "-q",
        "--timeout=3600",
        f"--hypothesis-seed={seed}",
        f"tests/fuzz/test_{target}.py",
    ]
    started = time.monotonic()
    finished = subprocess.run(
        [sys.executable, *words],
        cwd=HERE.parent.parent,
        env={**os.environ, "FUZZ_EXAMPLES": str(examples)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    passed = finished.returncode == 0
    took = time.monotonic() - started
    print(
        f"{target} seed={seed} examples={examples} {'passed' if passed else 'FAILED'} {took:.1f}s", flush=True
    )
    if not passed:
        print(finished.stdout[-20_000:])
        print(f"again: FUZZ_EXAMPLES={examples} python {' '.join(words)}", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main())
