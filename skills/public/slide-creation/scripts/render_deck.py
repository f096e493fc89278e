"""Draws every slide of a .pptx as PNG, and all of them on one sheet, to be looked at before it is delivered.

With LibreOffice (soffice) and pdftoppm the pictures are exact; without them they are drawn here: positions,
texts, sizes, colours, pictures, tables and simple charts, in fonts of this machine.
"""

import argparse
import io
import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _common import stop, stop_missing
from _slides import (
    EMU,
    Paragraph,
    Placed,
    Run,
    background,
    color_of,
    fill_color,
    open_deck,
    paragraphs,
    placed,
    theme_colors,
)
from _text import LINE_HEIGHT, font, pieces, width, wrap

try:
    from PIL import Image, ImageDraw
except ImportError:
    stop_missing("pillow")

SHEET_COLUMNS, SHEET_WIDTH, GAP = 3, 520, 14
CHART_COLORS = ("2563A8", "E07B39", "3A8F5C", "8757A5", "C9A227", "C44E6A")
Point = tuple[float, float]


class Canvas:
    """One slide as a picture; boxes are in inches."""

    def __init__(self, size: Point, dots: int, color: str, theme: dict[str, str]) -> None:
        self.dots, self.theme = dots, theme
        dark = int(color, 16) & 0x808080 == 0
        self.label, self.grid = ("A9B7C6", "3A4C60") if dark else ("5F6B7A", "D9DEE4")
        self.image = Image.new("RGB", (round(size[0] * dots), round(size[1] * dots)), f"#{color}")
        self.draw = ImageDraw.Draw(self.image)

    def edges(self, box: tuple[float, float, float, float]) -> tuple[float, ...]:
        """Return a box in pixels."""
        return tuple(edge * self.dots for edge in box)

    def line(self, at: Point, text: str, size: float, color: str, bold: bool = False) -> None:
        """Write one line; `at` is the left end of its baseline area in pixels, `size` in points."""
        x, y = at
        pixels = max(round(size * self.dots / 72), 4)
        for part, wide in pieces(text):
            # `width` allows for a stand-in font that is wider than the one in the file.
            room = width(part, size, bold) * self.dots / 72
            natural = font(pixels, bold, wide).getlength(part)
            shown = font(max(round(pixels * min(1.0, room / natural)), 4) if natural else pixels, bold, wide)
            self.draw.text((x, y + pixels), part, fill=f"#{color}", font=shown, anchor="ls")
            x += room

    def paragraphs(
        self, box: tuple[float, float, float, float], texts: Sequence[Paragraph], anchor: str
    ) -> None:
        """Write paragraphs into a box, wrapped and anchored as the file says."""
        left, top, right, bottom = box
        scale = self.dots / 72
        rows: list[tuple[Paragraph, str, float]] = []
        for paragraph in texts:
            room = (right - left) * 72 - paragraph.indent
            bold = any(run.bold for run in paragraph.runs[:1])
            lines = wrap(paragraph.text, paragraph.size, room, bold)
            for index, line in enumerate(lines):
                after = paragraph.after if index == len(lines) - 1 else 0.0
                rows.append(
                    (
                        paragraph if index == 0 else _continued(paragraph),
                        line,
                        paragraph.size * LINE_HEIGHT + after,
                    )
                )
        total = sum(high for _, _, high in rows) * scale
        y = top * self.dots
        if anchor != "TOP":
            spare = (bottom - top) * self.dots - total
            y += spare if anchor == "BOTTOM" else spare / 2
        for paragraph, line, high in rows:
            self._row(paragraph, line, (left * self.dots, y), (right - left) * self.dots)
            y += high * scale

    def _row(self, paragraph: Paragraph, line: str, at: Point, room: float) -> None:
        if not paragraph.runs:
            return
        scale = self.dots / 72
        first = paragraph.runs[0]
        used = width(line, paragraph.size, first.bold) * scale
        x = at[0] + paragraph.indent * scale
        if paragraph.align in {"CENTER", "RIGHT"}:
            x = at[0] + (room - used) * (0.5 if paragraph.align == "CENTER" else 1.0)
        if paragraph.bullet:
            self.line((x - 18 * scale, at[1]), paragraph.bullet, paragraph.size, first.color)
        for text, run in _styled(paragraph, line):
            self.line((x, at[1]), text, run.size, run.color, run.bold)
            x += width(text, run.size, run.bold) * scale


def _styled(paragraph: Paragraph, line: str) -> list[tuple[str, Run]]:
    """Return the parts of a wrapped line with their looks."""
    looks = [run for run in paragraph.runs for _ in run.text]
    start = max(paragraph.text.find(line), 0)
    parts: list[tuple[str, Run]] = []
    for character, run in zip(line, looks[start:], strict=False):
        if parts and parts[-1][1] is run:
            parts[-1] = (parts[-1][0] + character, run)
        else:
            parts.append((character, run))
    return parts


def _continued(paragraph: Paragraph) -> Paragraph:
    return Paragraph(paragraph.runs, paragraph.align, "", paragraph.indent, paragraph.after)


def main() -> None:
    """Write the pictures and print where they are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("deck", type=Path, help="the .pptx")
    parser.add_argument("--out", type=Path, required=True, help="folder for slide-01.png ... and sheet.png")
    parser.add_argument("--dpi", type=int, default=96, help="pixels per inch (default 96: 1280 × 720)")
    parser.add_argument("--renderer", choices=("auto", "libreoffice", "builtin"), default="auto")
    options = parser.parse_args()
    if not 30 <= options.dpi <= 300:
        stop(f"--dpi must be from 30 to 300, not {options.dpi}")

    presentation = open_deck(options.deck)
    options.out.mkdir(parents=True, exist_ok=True)
    exact = all(map(shutil.which, ("soffice", "pdftoppm")))
    if options.renderer == "libreoffice" and not exact:
        stop("LibreOffice (soffice) and pdftoppm are not installed; use --renderer builtin")
    if exact and options.renderer != "builtin":
        renderer, images = "libreoffice", _libreoffice(options.deck, options.dpi)
    else:
        renderer, images = (
            "builtin",
            [_slide(presentation, slide, options.dpi) for slide in presentation.slides],
        )
    files = []
    for number, image in enumerate(images, 1):
        files.append(str(options.out / f"slide-{number:02}.png"))
        image.save(files[-1])
    sheet = options.out / "sheet.png"
    if images:
        _sheet(images).save(sheet)
    print(json.dumps({"renderer": renderer, "slides": files, "sheet": str(sheet)}, indent=1))


def _libreoffice(deck: Path, dpi: int) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        home = f"-env:UserInstallation=file://{folder}/profile"
        command = ["soffice", home, "--headless", "--convert-to", "pdf", "--outdir", folder, str(deck)]
        made = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        pdf = Path(folder) / f"{deck.stem}.pdf"
        if not pdf.exists():
            stop(f"LibreOffice could not convert {deck}: {made.stderr.strip()[:300]}; try --renderer builtin")
        subprocess.run(
            ["pdftoppm", "-png", "-r", str(dpi), str(pdf), f"{folder}/page"], timeout=180, check=True
        )
        return [Image.open(io.BytesIO(page.read_bytes())) for page in sorted(Path(folder).glob("page*.png"))]


def _slide(presentation: Any, slide: Any, dots: int) -> Any:
    theme = theme_colors(presentation)
    size = (presentation.slide_width / EMU, presentation.slide_height / EMU)
    canvas = Canvas(size, dots, background(slide, theme), theme)
    for one in placed(slide.shapes):
        if getattr(one.shape, "has_chart", False):
            _chart(canvas, one)
        elif getattr(one.shape, "has_table", False):
            _table(canvas, one)
        elif hasattr(one.shape, "image"):
            _picture(canvas, one)
        else:
            _shape(canvas, one)
    return canvas.image


def _shape(canvas: Canvas, one: Placed) -> None:
    shape = one.shape
    color = fill_color(shape.fill, canvas.theme) if hasattr(shape, "fill") else None
    if color:
        oval = "ellipse" in str(shape._element.xpath(".//a:prstGeom/@prst"))
        (canvas.draw.ellipse if oval else canvas.draw.rectangle)(canvas.edges(one.box), fill=f"#{color}")
    if shape.has_text_frame and shape.text_frame.text.strip():
        frame = shape.text_frame
        left, top, right, bottom = one.box
        inner = (
            left + frame.margin_left / EMU,
            top + frame.margin_top / EMU,
            right - frame.margin_right / EMU,
            bottom - frame.margin_bottom / EMU,
        )
        anchor = frame.vertical_anchor.name if frame.vertical_anchor is not None else "TOP"
        canvas.paragraphs(inner, paragraphs(shape, frame, canvas.theme), anchor)


def _picture(canvas: Canvas, one: Placed) -> None:
    left, top, right, bottom = canvas.edges(one.box)
    size = (max(round(right - left), 1), max(round(bottom - top), 1))
    try:
        picture = Image.open(io.BytesIO(one.shape.image.blob)).convert("RGBA").resize(size)
    except OSError:
        canvas.draw.rectangle((left, top, right, bottom), outline="#999999")
        return
    canvas.image.paste(picture, (round(left), round(top)), picture)


def _table(canvas: Canvas, one: Placed) -> None:
    table = one.shape.table
    y = one.top
    for row in table.rows:
        x, high = one.left, row.height / EMU
        for column, cell in zip(table.columns, row.cells, strict=True):
            wide = column.width / EMU
            color = fill_color(cell.fill, canvas.theme)
            if color:
                canvas.draw.rectangle(canvas.edges((x, y, x + wide, y + high)), fill=f"#{color}")
            inner = (x + 0.1, y + 0.05, x + wide - 0.1, y + high - 0.05)
            anchor = cell.vertical_anchor.name if cell.vertical_anchor is not None else "TOP"
            canvas.paragraphs(inner, paragraphs(None, cell.text_frame, canvas.theme), anchor)
            x += wide
        y += high


def _chart(canvas: Canvas, one: Placed) -> None:
    chart = one.shape.chart
    plot = chart.plots[0]
    names = [str(name) for name in plot.categories]
    series = [
        (str(entry.name), [value or 0.0 for value in entry.values], _series_color(canvas, entry, index))
        for index, entry in enumerate(plot.series)
    ]
    kind = chart.chart_type.name
    left, top, right, bottom = canvas.edges(one.box)
    foot = 34 if chart.has_legend else 0
    area = (left + 60, top + 14, right - 12, bottom - 34 - foot)
    if "PIE" in kind or "DOUGHNUT" in kind:
        _pie(canvas, one, names, plot.series[0], "DOUGHNUT" in kind)
        return
    if foot:
        x = left + 60
        for name, _, color in series:
            canvas.draw.rectangle((x, bottom - 22, x + 12, bottom - 10), fill=f"#{color}")
            canvas.line((x + 18, bottom - 26), name, 12, canvas.label)
            x += 40 + width(name, 12) * canvas.dots / 72
    _plot(canvas, area, kind, names, series)


def _series_color(canvas: Canvas, entry: Any, index: int) -> str:
    color = fill_color(entry.format.fill, canvas.theme) or color_of(
        entry.format.line.color if entry.format.line.fill.type is not None else None, canvas.theme
    )
    return color or CHART_COLORS[index % len(CHART_COLORS)]


def _plot(
    canvas: Canvas,
    area: tuple[float, float, float, float],
    kind: str,
    names: list[str],
    series: list[tuple[str, list[float], str]],
) -> None:
    left, top, right, bottom = area
    stacked, flat = "STACKED" in kind, "BAR" in kind
    values = [value for _, numbers, _ in series for value in numbers]
    sums = [sum(numbers[index] for _, numbers, _ in series) for index in range(len(names))]
    high, low = max([*(sums if stacked else values), 0.0]) or 1.0, min([*values, 0.0])
    ticks = _ticks(low, high)
    low, high = ticks[0], ticks[-1]
    length = (right - left) if flat else (bottom - top)

    def along(value: float) -> float:
        share = (value - low) / (high - low) * length
        return left + share if flat else bottom - share

    for value in ticks:
        ends = (
            (along(value), top, along(value), bottom) if flat else (left, along(value), right, along(value))
        )
        canvas.draw.line(ends, fill="#" + canvas.grid)
        at = (along(value) - 10, bottom + 6) if flat else (left - 52, along(value) - 12)
        canvas.line(at, f"{value:g}", 11, canvas.label)
    slot = ((bottom - top) if flat else (right - left)) / max(len(names), 1)
    for index, name in enumerate(names):
        start = (top if flat else left) + slot * index
        at = (
            (left - 55, start + slot / 2 - 10)
            if flat
            else (start + slot / 2 - width(name, 11) * canvas.dots / 144, bottom + 6)
        )
        canvas.line(at, name, 11, canvas.label)
        base = 0.0
        for order, (_, numbers, color) in enumerate(series):
            if "LINE" in kind:
                continue
            thick = slot * 0.62 / (1 if stacked else len(series))
            edge = start + slot * 0.19 + (0 if stacked else order * thick)
            ends = sorted((along(base), along(base + numbers[index])))
            box = (ends[0], edge, ends[1], edge + thick) if flat else (edge, ends[0], edge + thick, ends[1])
            canvas.draw.rectangle(box, fill=f"#{color}")
            base += numbers[index] if stacked else 0.0
    if "LINE" in kind:
        for _, numbers, color in series:
            points = [(left + slot * (index + 0.5), along(value)) for index, value in enumerate(numbers)]
            canvas.draw.line(points, fill=f"#{color}", width=3)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers at even distances from at most `low` to at least `high`."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [index * step for index in range(first, last + 1)]


def _pie(canvas: Canvas, one: Placed, names: list[str], series: Any, hole: bool) -> None:
    left, top, right, bottom = canvas.edges(one.box)
    radius = min((right - left) * 0.3, (bottom - top) * 0.44)
    x, y = left + (right - left) * 0.4, (top + bottom) / 2
    values = [value or 0.0 for value in series.values]
    total, angle = sum(values) or 1.0, -90.0
    for index, value in enumerate(values):
        end = angle + 360 * value / total
        point = series.points[index].format.fill
        color = fill_color(point, canvas.theme) or CHART_COLORS[index % len(CHART_COLORS)]
        canvas.draw.pieslice(
            (x - radius, y - radius, x + radius, y + radius), angle, end, fill=f"#{color}", outline="white"
        )
        middle = math.radians((angle + end) / 2)
        at = (x + math.cos(middle) * radius * 0.75 - 14, y + math.sin(middle) * radius * 0.75 - 12)
        angle = end
        canvas.line((right - 150, top + 20 + index * 26), f"{names[index]}", 12, color)
        canvas.line(at, f"{value / total:.0%}", 12, "FFFFFF")
    if hole:
        inner = radius * 0.5
        canvas.draw.ellipse((x - inner, y - inner, x + inner, y + inner), fill=canvas.image.getpixel((0, 0)))


def _sheet(images: Sequence[Any]) -> Any:
    wide = SHEET_WIDTH
    high = round(wide * images[0].height / images[0].width)
    rows = -(-len(images) // SHEET_COLUMNS)
    sheet = Image.new("RGB", (GAP + SHEET_COLUMNS * (wide + GAP), GAP + rows * (high + GAP)), "#8A8F98")
    for index, image in enumerate(images):
        row, column = divmod(index, SHEET_COLUMNS)
        sheet.paste(
            image.convert("RGB").resize((wide, high)), (GAP + column * (wide + GAP), GAP + row * (high + GAP))
        )
    return sheet


if __name__ == "__main__":
    main()
