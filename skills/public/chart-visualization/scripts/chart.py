"""Draws a chart from a JSON specification and writes PNG and SVG; says what a reader would stumble over."""

import argparse
import json
import re
import textwrap
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

from _common import stop
from _data import ChartData, read_data
from _style import GREY, INK, LIGHT, PALETTES, SIZES, apply, formatter, has_chinese_font, pyplot

MAX_SERIES, MAX_SLICES, MAX_BARS = 6, 6, 25
NO_DATE = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
"""What to leave out of each format, so that the same input gives the same file."""
KEYS = {
    "kind",
    "title",
    "subtitle",
    "source",
    "data",
    "x",
    "y",
    "by",
    "x_label",
    "y_label",
    "format",
    "unit",
    "palette",
    "size",
    "sort",
    "top",
    "stacked",
    "labels",
    "highlight",
    "lines",
    "log",
    "bins",
    "legend",
    "dpi",
    "total",
}


class Chart:
    """One figure with its specification, data and warnings."""

    def __init__(self, spec: dict[str, Any], data: ChartData) -> None:
        self.spec = spec
        self.data = data
        self.warnings: list[str] = []
        self.write = formatter(spec)
        self.colors: list[str] = PALETTES[spec.get("palette", "default")]
        self.figure = pyplot.figure(figsize=SIZES[spec.get("size", "wide")])
        self.axes = self.figure.add_axes((0.09, 0.13, 0.87, 0.66))

    def color(self, index: int) -> str:
        """Return the colour of a series."""
        return self.colors[index % len(self.colors)]

    def bar_color(self, category: Any, index: int) -> str:
        """Return the colour of a bar: the highlighted stand out, the others step back."""
        chosen = self.spec.get("highlight")
        if not chosen:
            return self.color(index)
        return self.color(0) if str(category) in map(str, chosen) else LIGHT


def main() -> None:
    """Read the specification, draw, write the files and print a JSON report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path, help="JSON file; its keys are in references/chart-spec.md")
    parser.add_argument(
        "--out", type=Path, required=True, help="path without suffix, e.g. /mnt/user-data/outputs/sales"
    )
    parser.add_argument(
        "--formats", default="png,svg", help="png, svg, pdf, comma separated (default png,svg)"
    )
    options = parser.parse_args()
    formats = options.formats.split(",")
    if not formats or set(formats) - {"png", "svg", "pdf"}:
        stop(f"--formats must be of png, svg and pdf, not {options.formats!r}")

    spec = _read_spec(options.spec)
    apply()
    chart = Chart(spec, _arranged(spec, read_data(spec, options.spec.resolve().parent)))
    KINDS[spec["kind"]](chart)
    _finish(chart)
    _check(chart)
    files = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for suffix in formats:
        file = options.out.with_name(f"{options.out.name}.{suffix}")
        metadata = {NO_DATE[suffix]: None}
        chart.figure.savefig(file, dpi=spec.get("dpi", 160), metadata=metadata, facecolor="white")
        files.append(str(file))
    print(json.dumps({"files": files, "warnings": chart.warnings}, ensure_ascii=False, indent=1))


def _read_spec(path: Path) -> dict[str, Any]:
    try:
        spec = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        stop(f"{path} cannot be read: {error}")
    if not isinstance(spec, dict) or spec.get("kind") not in KINDS:
        found = spec.get("kind") if isinstance(spec, dict) else spec
        stop(f"'kind' is {found!r}; use one of {', '.join(KINDS)}")
    if unknown := sorted(set(spec) - KEYS):
        stop(f"unknown keys {', '.join(unknown)}; known are {', '.join(sorted(KEYS))}")
    for key, table in (("palette", PALETTES), ("size", SIZES)):
        if key in spec and spec[key] not in table:
            stop(f"{key!r} is {spec[key]!r}; use one of {', '.join(table)}")
    if not str(spec.get("title", "")).strip():
        stop("'title' is missing: write the finding as a sentence, e.g. \"Online sales doubled in 2024\"")
    return spec


def _arranged(spec: dict[str, Any], data: ChartData) -> ChartData:
    """Return the data sorted by the first series and cut to the `top` positions, the rest joined."""
    order = list(range(len(data.x)))
    first = next(iter(data.series.values()))
    if spec.get("sort") in {"asc", "desc"}:
        order.sort(key=lambda index: first[index] or 0, reverse=spec["sort"] == "desc")
    x = [data.x[index] for index in order]
    series = {name: [values[index] for index in order] for name, values in data.series.items()}
    top = spec.get("top")
    if isinstance(top, int) and 0 < top < len(x):
        rest = {name: sum(value or 0 for value in values[top:]) for name, values in series.items()}
        x = [*x[:top], f"{'其他' if _is_chinese(spec) else 'Other'} ({len(x) - top})"]
        series = {name: [*values[:top], rest[name]] for name, values in series.items()}
    return ChartData(x, series)


def _is_chinese(spec: dict[str, Any]) -> bool:
    """Return whether words that are not given shall be Chinese, as the title is."""
    return re.search(r"[\u4e00-\u9fff]", str(spec["title"])) is not None


def _bars(chart: Chart, *, horizontal: bool) -> None:
    axes, data = chart.axes, chart.data
    places = range(len(data.x))
    stacked, count = bool(chart.spec.get("stacked")), len(data.series)
    width = 0.72 if stacked else 0.72 / count
    base = [0.0] * len(data.x)
    for number, (name, values) in enumerate(data.series.items()):
        heights = [value or 0.0 for value in values]
        shift = 0.0 if stacked else (number - (count - 1) / 2) * width
        colors = [chart.bar_color(place, number) for place in data.x]
        draw = axes.barh if horizontal else axes.bar
        bars = draw(
            [place + shift for place in places],
            heights,
            width,
            color=colors,
            label=name,
            **{"left" if horizontal else "bottom": base if stacked else None},
        )
        if chart.spec.get("labels", len(data.x) * count <= 16):
            axes.bar_label(
                bars,
                [chart.write(value) for value in heights],
                padding=0 if stacked else 3,
                fontsize=9,
                label_type="center" if stacked else "edge",
                color="white" if stacked else INK,
            )
        if stacked:
            base = [a + b for a, b in zip(base, heights, strict=True)]
    names = [_label(place) for place in data.x]
    if horizontal:
        axes.set_yticks(list(places), [textwrap.fill(name, 24) for name in names])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
    else:
        lines = max(6, int(90 / max(len(names), 1)))
        axes.set_xticks(list(places), [textwrap.fill(name, lines) for name in names])
        axes.grid(axis="x", visible=False)
    axes.margins(x=0.08 if horizontal else 0.03, y=0.03 if horizontal else 0.1)
    if len(names) > MAX_BARS:
        chart.warnings.append(f"{len(names)} bars: show the top ones with 'top', or use a line")


def _line(chart: Chart) -> None:
    axes, data = chart.axes, chart.data
    chosen = [str(name) for name in chart.spec.get("highlight", [])]
    ends = []
    for number, (name, values) in enumerate(data.series.items()):
        strong = not chosen or name in chosen
        color = chart.color(number) if strong else LIGHT
        y = [float("nan") if value is None else value for value in values]
        axes.plot(
            data.x,
            y,
            color=color,
            linewidth=2.4 if strong else 1.6,
            label=name,
            zorder=3 if strong else 2,
            marker="o" if len(y) <= 14 else None,
            markersize=4.5,
        )
        last = next((index for index in range(len(values) - 1, -1, -1) if values[index] is not None), None)
        if last is not None:
            ends.append((values[last], data.x[last], name, color if strong else GREY))
    if len(data.series) > 1 and chart.spec.get("legend") is None:
        _name_ends(chart, ends)
    _wrap_ticks(chart)


def _name_ends(chart: Chart, ends: list[tuple[Any, Any, str, str]]) -> None:
    """Write the series' names at the ends of their lines, moved apart where they would overlap."""
    low, high = chart.axes.get_ylim()
    gap = (high - low) * 0.055
    place = float("-inf")
    for value, x, name, color in sorted(ends, key=lambda end: end[0]):
        place = max(value, place + gap)
        chart.axes.annotate(
            name,
            (x, place),
            xytext=(8, 0),
            textcoords="offset points",
            color=color,
            va="center",
            fontsize=10,
            annotation_clip=False,
        )
    longest = max(len(name) for _, _, name, _ in ends)
    left, bottom, width, height = chart.axes.get_position().bounds
    chart.axes.set_position((left, bottom, width - min(0.012 * longest, 0.25), height))
    chart.spec["legend"] = False


def _area(chart: Chart) -> None:
    values = [[value or 0.0 for value in series] for series in chart.data.series.values()]
    colors = [chart.color(index) for index in range(len(values))]
    chart.axes.stackplot(chart.data.x, *values, labels=list(chart.data.series), colors=colors, alpha=0.9)
    chart.axes.margins(x=0)
    _wrap_ticks(chart)


def _scatter(chart: Chart) -> None:
    if chart.data.x and isinstance(chart.data.x[0], str):
        stop("a scatter plot needs numbers or dates in 'x'")
    for number, (name, values) in enumerate(chart.data.series.items()):
        pairs = [(x, y) for x, y in zip(chart.data.x, values, strict=True) if y is not None]
        alpha = 0.8 if len(pairs) < 300 else 0.35
        chart.axes.scatter(
            [x for x, _ in pairs],
            [y for _, y in pairs],
            color=chart.color(number),
            label=name,
            s=38,
            alpha=alpha,
            edgecolors="white",
            linewidths=0.5,
        )


def _histogram(chart: Chart) -> None:
    for number, (name, values) in enumerate(chart.data.series.items()):
        numbers = [value for value in values if value is not None]
        chart.axes.hist(
            numbers,
            bins=chart.spec.get("bins", "auto"),
            color=chart.color(number),
            label=name,
            alpha=0.75 if len(chart.data.series) > 1 else 1,
            edgecolor="white",
        )
    chart.axes.xaxis.set_major_formatter(chart.write)
    chart.axes.grid(axis="x", visible=False)
    chart.spec.setdefault("y_label", "count")


def _box(chart: Chart) -> None:
    names = list(chart.data.series)
    values = [[one for one in series if one is not None] for series in chart.data.series.values()]
    drawn = chart.axes.boxplot(
        values,
        tick_labels=[textwrap.fill(name, 14) for name in names],
        patch_artist=True,
        widths=0.5,
        medianprops={"color": INK, "linewidth": 1.6},
    )
    for number, box in enumerate(drawn["boxes"]):
        box.set(facecolor=chart.color(number), alpha=0.75, edgecolor=GREY)
    chart.spec["legend"] = False


def _heatmap(chart: Chart) -> None:
    rows = list(chart.data.series)
    values = [
        [float("nan") if one is None else one for one in series] for series in chart.data.series.values()
    ]
    present = [one for series in values for one in series if one == one]
    bounds = max((abs(one) for one in present), default=1.0)
    diverging = any(one < 0 for one in present)
    image = chart.axes.imshow(
        values,
        aspect="auto",
        cmap="RdBu" if diverging else "Blues",
        vmin=-bounds if diverging else None,
        vmax=bounds if diverging else None,
    )
    names = [_label(place) for place in chart.data.x]
    chart.axes.set_xticks(range(len(names)), [textwrap.fill(name, 12) for name in names])
    chart.axes.set_yticks(range(len(rows)), [textwrap.fill(name, 22) for name in rows])
    chart.axes.grid(visible=False)
    for side in chart.axes.spines.values():
        side.set_visible(False)
    if len(names) * len(rows) <= 200:
        for y, series in enumerate(values):
            for x, one in enumerate(series):
                if one == one:
                    dark = sum(image.cmap(image.norm(one))[:3]) < 1.6
                    chart.axes.text(
                        x,
                        y,
                        chart.write(one),
                        ha="center",
                        va="center",
                        fontsize=9,
                        color="white" if dark else INK,
                    )
    else:
        chart.figure.colorbar(image, ax=chart.axes, format=chart.write)
    chart.spec["legend"] = False


def _pie(chart: Chart, *, hole: bool) -> None:
    values = [value or 0.0 for value in next(iter(chart.data.series.values()))]
    if min(values) < 0 or sum(values) == 0:
        stop("a pie needs parts of a whole: no negative values and a sum above 0; use a bar chart")
    total = sum(values)
    colors = [chart.bar_color(place, index) for index, place in enumerate(chart.data.x)]
    names = [
        f"{_label(place)}  {value / total:.0%}" for place, value in zip(chart.data.x, values, strict=True)
    ]
    chart.axes.pie(
        values,
        labels=names,
        colors=colors,
        startangle=90,
        counterclock=False,
        wedgeprops={"width": 0.42 if hole else 1, "edgecolor": "white", "linewidth": 1.5},
        textprops={"fontsize": 10.5, "color": INK},
    )
    if hole:
        chart.axes.text(
            0, 0, chart.write(total), ha="center", va="center", fontsize=17, weight="bold", color=INK
        )
    chart.spec["legend"] = False
    if len(values) > MAX_SLICES:
        chart.warnings.append(f"{len(values)} slices: use a bar chart, or 'sort': 'desc' with 'top': 5")


def _waterfall(chart: Chart) -> None:
    steps = [value or 0.0 for value in next(iter(chart.data.series.values()))]
    names = [_label(place) for place in chart.data.x]
    place, starts = 0.0, []
    for step in steps:
        starts.append(place)
        place += step
    names.append(str(chart.spec.get("total", "合计" if _is_chinese(chart.spec) else "Total")))
    heights, starts = [*steps, place], [*starts, 0.0]
    middle = [chart.color(2) if step >= 0 else chart.color(5) for step in steps[1:]]
    bars = chart.axes.bar(
        range(len(names)), heights, 0.66, bottom=starts, color=[chart.color(0), *middle, chart.color(0)]
    )
    labels = [
        chart.write(height)
        if index in {0, len(steps)}
        else f"{'+' if height >= 0 else ''}{chart.write(height)}"
        for index, height in enumerate(heights)
    ]
    chart.axes.bar_label(bars, labels, padding=3, fontsize=9.5)
    for index in range(len(steps)):
        level = starts[index] + steps[index]
        chart.axes.plot([index + 0.33, index + 0.67], [level, level], color=GREY, linewidth=0.9)
    chart.axes.set_xticks(
        range(len(names)), [textwrap.fill(name, max(6, 90 // len(names))) for name in names]
    )
    chart.axes.grid(axis="x", visible=False)
    chart.axes.margins(y=0.12)
    chart.spec["legend"] = False


KINDS: dict[str, Callable[[Chart], None]] = {
    "bar": lambda chart: _bars(chart, horizontal=False),
    "barh": lambda chart: _bars(chart, horizontal=True),
    "line": _line,
    "area": _area,
    "scatter": _scatter,
    "histogram": _histogram,
    "box": _box,
    "heatmap": _heatmap,
    "pie": lambda chart: _pie(chart, hole=False),
    "donut": lambda chart: _pie(chart, hole=True),
    "waterfall": _waterfall,
}


def _label(place: Any) -> str:
    if hasattr(place, "strftime"):
        return str(place.strftime("%Y-%m-%d"))
    return str(int(place)) if isinstance(place, float) and place == int(place) else str(place)


def _wrap_ticks(chart: Chart) -> None:
    x = chart.data.x
    if x and isinstance(x[0], str):
        step = -(-len(x) // 14)
        chart.axes.set_xticks(range(0, len(x), step), [textwrap.fill(name, 12) for name in x[::step]])
    elif x and isinstance(x[0], float) and all(place == int(place) for place in x) and len(x) <= 14:
        chart.axes.set_xticks(x, [str(int(place)) for place in x])


def _finish(chart: Chart) -> None:
    """Add titles, axes, reference lines, legend and source."""
    spec, axes, figure = chart.spec, chart.axes, chart.figure
    kind = spec["kind"]
    values = axes.xaxis if kind == "barh" else axes.yaxis
    if kind not in {"heatmap", "pie", "donut", "histogram"}:
        values.set_major_formatter(chart.write)
    if spec.get("log"):
        (axes.set_xscale if kind == "barh" else axes.set_yscale)("log")
        values.set_major_formatter(chart.write)
    for line in spec.get("lines", []):
        (axes.axvline if kind == "barh" else axes.axhline)(
            line["value"], color=GREY, linestyle="--", linewidth=1.1
        )
        place = (line["value"], 1.0) if kind == "barh" else (0.995, line["value"])
        axes.annotate(
            str(line.get("label", "")),
            place,
            xytext=(0, 4),
            textcoords="offset points",
            color=GREY,
            fontsize=9,
            xycoords=axes.get_xaxis_transform() if kind == "barh" else axes.get_yaxis_transform(),
            ha="center" if kind == "barh" else "right",
        )
    axes.set_xlabel(spec.get("x_label", ""))
    axes.set_ylabel(spec.get("y_label", ""))
    width = 62 if figure.get_figwidth() >= 8 else 40
    title = textwrap.fill(str(spec["title"]), width) if str(spec["title"]).isascii() else str(spec["title"])
    top = figure.text(0.03, 0.965, title, fontsize=16, weight="bold", color=INK, va="top")
    figure.canvas.draw()
    below = top.get_window_extent().y0 / figure.bbox.height - 0.012
    if spec.get("subtitle"):
        words = figure.text(0.03, below, str(spec["subtitle"]), fontsize=11.5, color=GREY, va="top")
        below = words.get_window_extent(figure.canvas.get_renderer()).y0 / figure.bbox.height - 0.012
    legend = spec.get("legend", len(chart.data.series) > 1)
    if legend:
        shown = figure.legend(
            *axes.get_legend_handles_labels(),
            loc="upper left",
            bbox_to_anchor=(0.02, below + 0.005),
            ncols=6,
            fontsize=10,
            borderaxespad=0.2,
            columnspacing=1.2,
            handlelength=1.2,
        )
        below = shown.get_window_extent(figure.canvas.get_renderer()).y0 / figure.bbox.height
    if spec.get("source"):
        figure.text(
            0.03,
            0.018,
            f"Source: {spec['source']}" if str(spec["source"]).isascii() else str(spec["source"]),
            fontsize=9,
            color=GREY,
            va="bottom",
        )
    _fit(chart, below - 0.025)


def _fit(chart: Chart, top: float) -> None:
    """Give the axes the space between titles and source that their labels leave."""
    figure, axes = chart.figure, chart.axes
    left, bottom, width, _ = axes.get_position().bounds
    floor = 0.065 if chart.spec.get("source") else 0.03
    axes.set_position((left, bottom, width, max(top - bottom, 0.2)))
    figure.canvas.draw()
    box = axes.get_tightbbox(figure.canvas.get_renderer()).transformed(figure.transFigure.inverted())
    here = axes.get_position()
    if chart.spec["kind"] in {"pie", "donut"}:
        axes.set_position((0.05, floor, 0.9, max(top - floor, 0.2)))
        return
    left = here.x0 + max(0.0, 0.03 - box.x0) - max(0.0, box.x0 - 0.03)
    bottom = here.y0 + floor - box.y0
    right = here.x1 - max(0.0, box.x1 - 0.985)
    axes.set_position((left, bottom, right - left, max(top - max(0.0, box.y1 - here.y1) - bottom, 0.2)))


def _check(chart: Chart) -> None:
    """Collect what a reader would stumble over in the drawn figure."""
    spec, figure = chart.spec, chart.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    unseen = _labels_outside(chart)
    shown = [
        text
        for text in figure.findobj(match=pyplot.Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in unseen
    ]
    boxes = [(text.get_text().replace("\n", " "), text.get_window_extent(renderer)) for text in shown]
    page = figure.bbox
    outside = [
        words
        for words, box in boxes
        if min(box.x0, box.y0) < -2 or box.x1 > page.width + 2 or box.y1 > page.height + 2
    ]
    chart.warnings += [f"text is cut off: {words!r}; shorten it or change 'size'" for words in outside[:5]]
    crossing = [(a, b) for (a, first), (b, second) in combinations(boxes[:150], 2) if _cross(first, second)]
    chart.warnings += [f"texts overlap: {a!r} and {b!r}" for a, b in crossing[:5]]
    if len(chart.data.series) > MAX_SERIES and spec["kind"] in {"bar", "barh", "line", "area"}:
        chart.warnings.append(f"{len(chart.data.series)} series: use 'highlight', or draw several charts")
    if re.search(r"[\u3400-\u9fff]", json.dumps(spec, ensure_ascii=False)) and not has_chinese_font():
        chart.warnings.append(
            "no font with Chinese characters is installed: Debian's package is fonts-noto-cjk"
        )
    if not spec.get("source"):
        chart.warnings.append("no 'source': say where the numbers come from")
    named = any(spec.get(key) for key in ("y_label", "unit", "subtitle")) or spec.get("format") == "percent"
    if not named and spec["kind"] in {"bar", "barh", "line", "area", "scatter", "box", "waterfall"}:
        chart.warnings.append("no unit: give 'y_label', 'unit' or a 'subtitle' that names it")


def _labels_outside(chart: Chart) -> set[int]:
    """Return the labels of ticks beyond the ends of an axis: they exist but are not drawn."""
    found = set()
    for axis in (chart.axes.xaxis, chart.axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        slack = (high - low) * 1e-6
        for tick in axis.get_major_ticks():
            if not low - slack <= tick.get_loc() <= high + slack:
                found |= {id(tick.label1), id(tick.label2)}
    return found


def _cross(a: Any, b: Any) -> bool:
    wide = min(a.x1, b.x1) - max(a.x0, b.x0)
    high = min(a.y1, b.y1) - max(a.y0, b.y0)
    return bool(wide > 2 and high > 2)


if __name__ == "__main__":
    main()
