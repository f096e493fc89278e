"""How a promise is reported."""

import json

Figure = float | int | str | list[float]


def promise(
    name: str, *, ratio: float, at_most: float | None = None, at_least: float | None = None, **figures: Figure
) -> int:
    """Print one JSON line and return the exit code: 1 on a miss."""
    bounds = {
        key: bound for key, bound in (("at_most", at_most), ("at_least", at_least)) if bound is not None
    }
    kept = (at_most is None or ratio <= at_most) and (at_least is None or ratio >= at_least)
    print(
        json.dumps({"benchmark": name, "kept": kept, "ratio": round(ratio, 3), **bounds, **figures}),
        flush=True,
    )
    return 0 if kept else 1
