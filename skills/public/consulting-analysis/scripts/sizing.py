#!/usr/bin/env python3
"""Evaluate a sizing or business-case model: base, range, sensitivity, and comparison of the approaches.

The model is JSON with name, unit and approaches; each approach has inputs (low, base, high, source) and
formulas that use + - * / ** min max and earlier formulas. The last formula is the result. The range is the
10th to 90th percentile of a simulation with triangular distributions and a fixed seed.
Exit code 0: sound; 1: approaches differ too much or inputs have no source; 2: an input is wrong.
"""

import argparse
import ast
import json
import math
import operator
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn
from xml.sax.saxutils import escape

DRAWS = 5000
OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}  # fmt: skip
FUNCTIONS = {"min": min, "max": max}


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def value_of(node: ast.AST, names: Mapping[str, float], place: str) -> float:
    """Return the value of a parsed formula; anything but arithmetic is refused."""
    match node:
        case ast.Expression(body=body):
            return value_of(body, names, place)
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return float(value)
        case ast.Name(id=name):
            if name not in names:
                fail(f"{place}: there is no input or earlier formula '{name}'")
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value_of(operand, names, place)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return float(OPERATORS[type(op)](value_of(left, names, place), value_of(right, names, place)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS and args:
            return float(FUNCTIONS[name](*(value_of(each, names, place) for each in args)))
        case _:
            fail(f"{place}: only numbers, names, + - * / ** min max and brackets are allowed")


class Approach:
    """One way to the result: inputs and formulas."""

    def __init__(self, data: dict[str, Any], place: str) -> None:
        self.name = str(data.get("name") or place)
        self.inputs = {
            key: _input(value, f"{self.name}: input '{key}'")
            for key, value in _part(data, "inputs", self.name)
        }
        self.formulas = {}
        for key, text in _part(data, "formulas", self.name):
            try:
                self.formulas[key] = ast.parse(str(text), mode="eval")
            except SyntaxError:
                fail(f"{self.name}: formula '{key}' cannot be read: {text!r}")
        self.result = list(self.formulas)[-1]

    def evaluate(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return every formula's value."""
        names = dict(values)
        found = {}
        for key, tree in self.formulas.items():
            place = f"{self.name}: formula '{key}'"
            try:
                found[key] = names[key] = value_of(tree, names, place)
            except (ZeroDivisionError, OverflowError, ValueError, TypeError) as error:
                fail(f"{place} cannot be computed: {error}")
            if not math.isfinite(found[key]):
                fail(f"{place} gives no finite number")
        return found

    def case(self, which: str) -> dict[str, float]:
        """Return the inputs' values of one case."""
        return {key: value[which] for key, value in self.inputs.items()}


def _part(data: dict[str, Any], key: str, name: str) -> Any:
    part = data.get(key)
    if not isinstance(part, dict) or not part:
        fail(f"{name} needs '{key}' with at least one entry")
    return part.items()


def _input(data: Any, place: str) -> dict[str, Any]:
    if isinstance(data, int | float) and not isinstance(data, bool):
        data = {"low": data, "base": data, "high": data}
    if not isinstance(data, dict):
        fail(f"{place} needs low, base, high and source")
    numbers = {}
    for key in ("low", "base", "high"):
        value = data.get(key, data.get("base"))
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            fail(f"{place}: {key} {value!r} is not a number")
        numbers[key] = float(value)
    if not numbers["low"] <= numbers["base"] <= numbers["high"]:
        fail(f"{place}: low, base and high must ascend")
    return {**numbers, "source": str(data.get("source") or "").strip()}


def simulate(approach: Approach) -> tuple[float, float, float]:
    """Return the 10th, 50th and 90th percentile of the result."""
    generator = random.Random(20)
    results = []
    for _ in range(DRAWS):
        values = {
            key: generator.triangular(value["low"], value["high"], value["base"])
            for key, value in approach.inputs.items()
        }
        results.append(approach.evaluate(values)[approach.result])
    results.sort()
    return results[DRAWS // 10], results[DRAWS // 2], results[DRAWS * 9 // 10]


def sensitivity(approach: Approach) -> list[dict[str, Any]]:
    """Return the result at each input's low and high value, the widest swing first."""
    base = approach.case("base")
    rows = []
    for key, value in approach.inputs.items():
        low, high = (approach.evaluate({**base, key: value[end]})[approach.result] for end in ("low", "high"))
        rows.append({"input": key, "at_low": low, "at_high": high, "swing": abs(high - low)})
    return sorted(rows, key=lambda row: -row["swing"])


def flip_value(approach: Approach, key: str, threshold: float) -> float | None:
    """Return the input's value (a tenth of low to ten times high) at which the result is the threshold."""
    base = approach.case("base")
    spread = sorted([approach.inputs[key]["low"] * 0.1, approach.inputs[key]["high"] * 10])
    low, high = spread

    def gap(value: float) -> float:
        return approach.evaluate({**base, key: value})[approach.result] - threshold

    if low == high or (gap(low) > 0) == (gap(high) > 0):
        return None
    for _ in range(100):
        middle = (low + high) / 2
        if (gap(middle) > 0) == (gap(low) > 0):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def analyse(model: dict[str, Any], factor: float, threshold: float | None) -> dict[str, Any]:
    """Return all results and warnings."""
    entries = model.get("approaches")
    if not isinstance(entries, list) or not entries or not all(isinstance(each, dict) for each in entries):
        fail("the model needs 'approaches' with at least one approach")
    approaches = [Approach(each, f"approach {number}") for number, each in enumerate(entries, 1)]
    results, warnings = [], []
    for approach in approaches:
        p10, p50, p90 = simulate(approach)
        result: dict[str, Any] = {
            "name": approach.name,
            "formulas": approach.evaluate(approach.case("base")),
            "result": approach.result,
            "base": approach.evaluate(approach.case("base"))[approach.result],
            "p10": p10,
            "p50": p50,
            "p90": p90,
            "sensitivity": sensitivity(approach),
        }
        if threshold is not None:
            result["flips_at"] = {key: flip_value(approach, key, threshold) for key in approach.inputs}
        results.append(result)
        for key, value in approach.inputs.items():
            if not value["source"]:
                warnings.append(f"{approach.name}: input '{key}' has no source; write one, or 'assumption'")
    bases = [abs(each["base"]) for each in results]
    if len({each["result"] for each in results}) > 1:
        warnings.append("the approaches end with different formulas; the last one must mean the same")
    elif len(results) > 1 and min(bases) > 0 and max(bases) / min(bases) > factor:
        warnings.append(f"the approaches differ by a factor of {max(bases) / min(bases):.1f}: find out why")
    if len(results) == 1:
        warnings.append("there is only one approach; add an independent one")
    return {
        "name": model.get("name", ""),
        "unit": model.get("unit", ""),
        "approaches": results,
        "warnings": warnings,
    }


def short(value: float) -> str:
    """Return a number with three significant digits and separators."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{round(value, 2 - math.floor(math.log10(abs(value)))):,.{digits}f}"


def markdown(result: dict[str, Any]) -> str:
    """Return the results as text for a report."""
    lines = [
        f"{result['name']} ({result['unit']})",
        "",
        "| Approach | Result | Base | 10-90 % range |",
        "|---|---|---|---|",
    ]
    for each in result["approaches"]:
        span = f"{short(each['p10'])} to {short(each['p90'])}"
        lines.append(f"| {each['name']} | {each['result']} | {short(each['base'])} | {span} |")
    for each in result["approaches"]:
        steps = ", ".join(f"{key} = {short(value)}" for key, value in each["formulas"].items())
        lines += [
            "",
            f"{each['name']}: {steps}",
            "",
            "| Input | Result at low | Result at high |",
            "|---|---|---|",
        ]
        lines += [
            f"| {row['input']} | {short(row['at_low'])} | {short(row['at_high'])} |"
            for row in each["sensitivity"]
        ]
        for key, value in each.get("flips_at", {}).items():
            lines.append(
                f"flips at {key} = {short(value)}" if value is not None else f"no flip by {key} alone"
            )
    return "\n".join([*lines, "", *(f"warning: {text}" for text in result["warnings"])]).rstrip()


def tornado(result: dict[str, Any]) -> str:
    """Return bars of the sensitivity of all approaches as SVG."""
    parts, top = [], 30
    for each in result["approaches"]:
        ends = [row[end] for row in each["sensitivity"] for end in ("at_low", "at_high")]
        low, high = min(ends), max(ends)
        width = (high - low) or 1.0

        def x(value: float, low: float = low, width: float = width) -> float:
            return 240 + 360 * (value - low) / width

        title = f"{each['name']}: {each['result']} = {short(each['base'])} {result['unit']}"
        parts.append(f'<text x="10" y="{top}" font-weight="bold">{escape(title)}</text>')
        for number, row in enumerate(each["sensitivity"]):
            y = top + 14 + 28 * number
            left, right = sorted((x(row["at_low"]), x(row["at_high"])))
            small, large = sorted((row["at_low"], row["at_high"]))
            size = max(right - left, 1)
            parts += [
                f'<text x="10" y="{y + 14}">{escape(row["input"][:22])}</text>',
                f'<rect x="{left:.1f}" y="{y}" width="{size:.1f}" height="18" fill="#4a7fb5"/>',
                f'<text x="{left - 4:.1f}" y="{y + 14}" text-anchor="end">{short(small)}</text>',
                f'<text x="{right + 4:.1f}" y="{y + 14}">{short(large)}</text>',
            ]
        bottom = top + 14 + 28 * len(each["sensitivity"])
        middle = f"{x(each['base']):.1f}"
        parts.append(f'<line x1="{middle}" y1="{top + 8}" x2="{middle}" y2="{bottom}" stroke="black"/>')
        top = bottom + 36
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="{top}" viewBox="0 0 680 {top}" '
        'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(parts)}</svg>\n"
    )


def main() -> int:
    """Read the model, print the results, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="model.json")
    parser.add_argument(
        "--factor", type=float, default=2.0, help="allowed ratio between approaches; default 2"
    )
    parser.add_argument(
        "--flip", type=float, metavar="THRESHOLD", help="input values at which the result is this"
    )
    parser.add_argument("--svg", type=Path, help="write the sensitivity as a picture")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    try:
        model = json.loads(options.model.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fail(f"{options.model} cannot be read: {error}")
    if not isinstance(model, dict):
        fail(f"{options.model} must be an object with name, unit and approaches")
    result = analyse(model, options.factor, options.flip)
    if options.svg:
        options.svg.parent.mkdir(parents=True, exist_ok=True)
        options.svg.write_text(tornado(result), encoding="utf-8")
    print(json.dumps(result, ensure_ascii=False, indent=2) if options.format == "json" else markdown(result))
    return 1 if result["warnings"] else 0


if __name__ == "__main__":
    sys.exit(main())
