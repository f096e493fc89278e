"""How a promise is reported."""

import json


def promise(name: str, *, ratio: float, at_most: float, **figures: float | int | str | list[float]) -> int:
    """Print one JSON line and return the exit code: 1 on a miss."""
    kept = ratio <= at_most
    print(
        json.dumps(
            {"benchmark": name, "kept": kept, "ratio": round(ratio, 3), "at_most": at_most, **figures}
        ),
        flush=True,
    )
    return 0 if kept else 1
