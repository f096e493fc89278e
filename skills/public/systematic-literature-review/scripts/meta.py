#!/usr/bin/env python3
"""Pool effects of studies: fixed effect and random effects (DerSimonian and Laird), with heterogeneity.

The CSV has the columns study, effect and se, or study, effect, low and high (95 % limits). With --log the
effects are ratios (OR, RR, HR): they are pooled as logarithms and printed as ratios.
Exit code 0: printed; 2: an input is wrong.
"""

import argparse
import csv
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from xml.sax.saxutils import escape

Z = 1.959964


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


@dataclass(frozen=True)
class Study:
    """One effect with its standard error, on the scale on which it is pooled."""

    name: str
    effect: float
    se: float


def read_studies(path: Path, log: bool) -> list[Study]:
    """Return the studies of a CSV file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        fail(f"{path} cannot be read: {error}")
    if (
        not rows
        or not {"study", "effect"} <= set(rows[0])
        or not ({"se"} <= set(rows[0]) or {"low", "high"} <= set(rows[0]))
    ):
        fail(f"{path} needs the columns study, effect and se, or study, effect, low and high")
    return [_study(row, f"{path}:{number}", log) for number, row in enumerate(rows, 2)]


def _study(row: dict[str, str], place: str, log: bool) -> Study:
    def number(key: str) -> float:
        try:
            value = float(row[key])
        except (TypeError, ValueError):
            fail(f"{place}: {key} {row[key]!r} is not a number")
        if not math.isfinite(value):
            fail(f"{place}: {key} {row[key]!r} is not finite")
        return value

    effect = number("effect")
    values = [effect]
    if not (row.get("se") or "").strip():
        values += [number("low"), number("high")]
        if not values[1] <= effect <= values[2] or values[1] == values[2]:
            fail(f"{place}: low, effect and high must ascend ({values[1]}, {effect}, {values[2]})")
    if log:
        if min(values) <= 0:
            fail(f"{place}: ratios must be above 0 for --log")
        values = [math.log(value) for value in values]
    error = number("se") if len(values) == 1 else (values[2] - values[1]) / (2 * Z)
    if error <= 0:
        fail(f"{place}: se must be above 0")
    return Study(row["study"], values[0], error)


def pooled(studies: list[Study], tau2: float) -> tuple[float, float, list[float]]:
    """Return mean, standard error and weights (shares) of an inverse-variance mean."""
    weights = [1 / (study.se**2 + tau2) for study in studies]
    total = sum(weights)
    mean = sum(weight * study.effect for weight, study in zip(weights, studies, strict=True)) / total
    return mean, math.sqrt(1 / total), [weight / total for weight in weights]


def analyse(studies: list[Study], log: bool) -> dict[str, Any]:
    """Return the results, on the scale of the input."""
    back = math.exp if log else float
    mean, error, _ = pooled(studies, 0)
    weights = [1 / study.se**2 for study in studies]
    q = sum(weight * (study.effect - mean) ** 2 for weight, study in zip(weights, studies, strict=True))
    df = len(studies) - 1
    c = sum(weights) - sum(weight**2 for weight in weights) / sum(weights)
    tau2 = max(0.0, (q - df) / c) if c > 0 else 0.0
    random_mean, random_error, shares = pooled(studies, tau2)

    def result(value: float, se: float) -> dict[str, float]:
        p = math.erfc(abs(value / se) / math.sqrt(2))
        low, high = back(value - Z * se), back(value + Z * se)
        return {
            "effect": round(back(value), 4),
            "low": round(low, 4),
            "high": round(high, 4),
            "p": round(p, 5),
        }

    listed = [
        {"study": study.name, **result(study.effect, study.se), "weight": round(share, 4)}
        for study, share in zip(studies, shares, strict=True)
    ]
    return {
        "studies": listed,
        "fixed": result(mean, error),
        "random": result(random_mean, random_error),
        "q": round(q, 3),
        "df": df,
        "i2_percent": round(max(0.0, (q - df) / q) * 100, 1) if q > 0 else 0.0,
        "tau2": round(tau2, 5),
    }


def forest(result: dict[str, Any], log: bool) -> str:
    """Return a forest plot as SVG."""

    def scale(value: float) -> float:
        return math.log(max(value, 1e-4)) if log else value

    rows = [*result["studies"], {"study": "Random effects", **result["random"], "weight": None}]
    null = 0.0
    limits = [scale(row[key]) for row in rows for key in ("low", "high")] + [null]
    low, high = min(limits), max(limits)
    margin = (high - low) * 0.05 or 1.0

    def x(value: float) -> float:
        return 220 + 320 * (value - low + margin) / (high - low + 2 * margin)

    parts = [
        f'<line x1="{x(null):.1f}" y1="20" x2="{x(null):.1f}" y2="{40 + 26 * len(rows)}" stroke="#999"/>'
    ]
    for value in sorted({low, null, high}):
        label = f"{math.exp(value) if log else value:.3g}"
        parts.append(f'<text x="{x(value):.1f}" y="14" text-anchor="middle" fill="#666">{label}</text>')
    for number, row in enumerate(rows):
        y = 40 + 26 * number
        left, mid, right = (x(scale(row[key])) for key in ("low", "effect", "high"))
        label = f"{row['effect']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        parts.append(f'<text x="10" y="{y + 4}">{escape(row["study"][:30])}</text>')
        if row["weight"] is None:
            points = f"{left:.1f},{y} {mid:.1f},{y - 7} {right:.1f},{y} {mid:.1f},{y + 7}"
            parts.append(f'<polygon points="{points}" fill="#1f4e79"/>')
        else:
            size = 4 + 10 * math.sqrt(row["weight"])
            parts.append(f'<line x1="{left:.1f}" y1="{y}" x2="{right:.1f}" y2="{y}" stroke="black"/>')
            corner = f'x="{mid - size / 2:.1f}" y="{y - size / 2:.1f}"'
            parts.append(f'<rect {corner} width="{size:.1f}" height="{size:.1f}" fill="#4a7fb5"/>')
        parts.append(f'<text x="560" y="{y + 4}">{label}</text>')
    height = 70 + 26 * len(rows)
    foot = f"I2 = {result['i2_percent']} %, tau2 = {result['tau2']}, Q = {result['q']} (df = {result['df']})"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="740" height="{height}" viewBox="0 0 740 {height}" '
        'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>'
        f'{"".join(parts)}<text x="10" y="{height - 14}">{foot}</text></svg>\n'
    )


def main() -> int:
    """Read, pool, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("effects", type=Path, help="CSV file")
    parser.add_argument("--log", action="store_true", help="effects are ratios")
    parser.add_argument("--svg", type=Path, help="write a forest plot")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    studies = read_studies(options.effects, options.log)
    if len(studies) < 2:
        fail("pooling needs at least two studies")
    result = analyse(studies, options.log)
    if options.svg:
        options.svg.parent.mkdir(parents=True, exist_ok=True)
        options.svg.write_text(forest(result, options.log), encoding="utf-8")
    if options.format == "json":
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return 0
    print("| Study | Effect | 95 % interval | Weight |\n|---|---|---|---|")
    for row in result["studies"]:
        print(f"| {row['study']} | {row['effect']} | {row['low']} to {row['high']} | {row['weight']:.1%} |")
    for name in ("fixed", "random"):
        row = result[name]
        p = f"p = {row['p']:.3f}" if row["p"] >= 0.001 else "p < 0.001"
        print(f"| {name} effects | {row['effect']} | {row['low']} to {row['high']} | {p} |")
    print(
        f"\nI2 = {result['i2_percent']} %, tau2 = {result['tau2']}, Q = {result['q']} (df = {result['df']})"
    )
    if result["i2_percent"] > 75 or len(studies) < 5:
        print("caution: few or very different studies; explain them before you report a pooled number")
    return 0


if __name__ == "__main__":
    sys.exit(main())
