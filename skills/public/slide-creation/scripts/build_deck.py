"""Builds a .pptx from a JSON description of the slides: editable text, native charts and tables, notes."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _common import stop, stop_missing
from _text import fit, height

try:
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData
    from pptx.dml.color import RGBColor
    from pptx.enum.chart import XL_CHART_TYPE, XL_LABEL_POSITION, XL_LEGEND_POSITION
    from pptx.enum.shapes import MSO_SHAPE
    from pptx.enum.text import MSO_ANCHOR, PP_ALIGN
    from pptx.oxml.ns import qn
    from pptx.util import Emu, Inches, Pt
except ImportError:
    stop_missing("python-pptx")

WIDE, HIGH, SIDE = 13.333, 7.5, 0.75
BODY_TOP, BODY_BOTTOM = 1.75, 6.75
BODY_SIZES = (28, 26, 24, 22, 20, 18, 16)
COLUMN_SIZES = (24, 22, 20, 18, 16, 14)
SMALL_SIZES = (20, 18, 16, 14)
THEMES = {
    "light": {
        "back": "FFFFFF",
        "ink": "1F2933",
        "muted": "5F6B7A",
        "accent": "2563A8",
        "second": "E07B39",
        "panel": "F0F4F9",
    },
    "dark": {
        "back": "14202E",
        "ink": "F4F7FA",
        "muted": "A9B7C6",
        "accent": "5FB0F0",
        "second": "F2A65A",
        "panel": "1F3044",
    },
    "warm": {
        "back": "FFFBF5",
        "ink": "33261D",
        "muted": "7A6657",
        "accent": "B5502B",
        "second": "3F7D6E",
        "panel": "F6EBDD",
    },
    "green": {
        "back": "FFFFFF",
        "ink": "18302A",
        "muted": "587068",
        "accent": "1F7A5C",
        "second": "C9832B",
        "panel": "EBF4F0",
    },
}
SERIES = ("2563A8", "E07B39", "3A8F5C", "8757A5", "C9A227", "C44E6A")
CHARTS = {
    "bar": XL_CHART_TYPE.COLUMN_CLUSTERED,
    "barh": XL_CHART_TYPE.BAR_CLUSTERED,
    "stacked": XL_CHART_TYPE.COLUMN_STACKED,
    "line": XL_CHART_TYPE.LINE_MARKERS,
    "pie": XL_CHART_TYPE.PIE,
    "donut": XL_CHART_TYPE.DOUGHNUT,
}


class Deck:
    """A presentation under construction, with the warnings about what did not fit."""

    def __init__(self, spec: dict[str, Any], folder: Path, template: Path | None) -> None:
        self.spec, self.folder = spec, folder
        self.colors = dict(THEMES[spec.get("theme", "light")])
        self.colors["grid"] = "3A4C60" if spec.get("theme") == "dark" else "D9DEE4"
        if spec.get("accent"):
            self.colors["accent"] = str(spec["accent"]).lstrip("#").upper()
        self.latin, self.chinese = spec.get("font", "Arial"), spec.get("font_zh", "Microsoft YaHei")
        self.presentation = Presentation(str(template) if template else None)
        self.template = template is not None
        if self.template:
            _check_size(self.presentation)
            _drop_slides(self.presentation)
        self.presentation.slide_width, self.presentation.slide_height = Inches(WIDE), Inches(HIGH)
        self.presentation.core_properties.title = str(spec.get("title", ""))
        self.warnings: list[str] = []
        self.number = 0

    def slide(self, title: str, back: str | None = None) -> Any:
        """Add a slide with a real title, so that outline view and screen readers have one."""
        layouts = self.presentation.slide_layouts
        layout = next((one for one in layouts if one.name == "Title Only"), layouts[min(5, len(layouts) - 1)])
        slide = self.presentation.slides.add_slide(layout)
        for shape in list(slide.placeholders):
            if shape.placeholder_format.idx != 0:
                shape._element.getparent().remove(shape._element)
        if not self.template or back:
            slide.background.fill.solid()
            slide.background.fill.fore_color.rgb = RGBColor.from_string(back or self.colors["back"])
        if slide.shapes.title is not None:
            slide.shapes.title.text_frame.text = title
        return slide

    def head(self, slide: Any, title: str) -> None:
        """Set the title of a content slide at the top, below a short line in the accent colour."""
        if not self.template:
            self.panel(slide, (SIDE + 0.05, 0.45, 0.7, 0.07), self.colors["accent"])
        self.fill(
            slide.shapes.title,
            [title],
            (SIDE, 0.55, WIDE - 2 * SIDE, 1.0),
            (30, 28, 26, 24),
            bold=True,
            anchor=MSO_ANCHOR.MIDDLE,
        )

    def fill(
        self,
        shape: Any,
        texts: Sequence[str],
        box: tuple[float, float, float, float],
        sizes: Sequence[float],
        *,
        color: str | None = None,
        bold: bool = False,
        align: Any = None,
        anchor: Any = None,
        bullets: bool = False,
        levels: Sequence[int] = (),
    ) -> None:
        """Put paragraphs into a shape at `box` (inches) in the largest size that fits, or warn."""
        wide, high = box[2:]
        shape.left, shape.top, shape.width, shape.height = map(Inches, box)
        indent = 0.3 if bullets else 0.0
        room = ((wide - 0.1 - indent) * 72, (high - 0.05) * 72)
        size = fit(texts, sizes, room, bold=bold)
        # Few bullets get more space between them, so that they do not crowd at the top.
        gap = 0.9 if bullets and size and height(texts, size, room[0], after=size * 0.9) <= room[1] else 0.5
        if size is None:
            size = sizes[-1]
            over = height(texts, size, room[0], bold=bold, after=size * 0.5) / room[1]
            self.warnings.append(
                f"slide {self.number}: {texts[0][:40]!r} needs {over:.0%} of its space; cut words or "
                "split the slide"
            )
        frame = shape.text_frame
        frame.word_wrap = True
        frame.margin_left = frame.margin_right = Inches(0.05)
        frame.margin_top = frame.margin_bottom = Inches(0.02)
        frame.vertical_anchor = anchor or MSO_ANCHOR.TOP
        for index, text in enumerate(texts):
            paragraph = frame.paragraphs[0] if index == 0 else frame.add_paragraph()
            level = levels[index] if levels else 0
            paragraph.alignment = align or PP_ALIGN.LEFT
            paragraph.space_after = Pt(size * gap) if index < len(texts) - 1 else Pt(0)
            self.runs(
                paragraph, text, size - 2 * level, color or (self.colors["muted"] if level else None), bold
            )
            if bullets:
                _bullet(paragraph, self.colors["accent"], level)

    def runs(
        self, paragraph: Any, text: str, size: float, color: str | None = None, bold: bool = False
    ) -> None:
        """Write text into a paragraph; parts in **double stars** become bold."""
        for run in list(paragraph.runs):
            run._r.getparent().remove(run._r)
        for index, part in enumerate(re.split(r"\*\*(.+?)\*\*", text)):
            if not part:
                continue
            run = paragraph.add_run()
            run.text = part
            run.font.size, run.font.bold = Pt(size), bold or index % 2 == 1
            run.font.color.rgb = RGBColor.from_string(color or self.colors["ink"])
            if not self.template or self.spec.get("font"):
                run.font.name = self.latin
                _east_asian(run, self.chinese)

    def text(
        self,
        slide: Any,
        texts: Sequence[str],
        box: tuple[float, float, float, float],
        sizes: Sequence[float],
        **style: Any,
    ) -> Any:
        """Add a text box."""
        shape = slide.shapes.add_textbox(*map(Inches, box))
        self.fill(shape, texts, box, sizes, **style)
        return shape

    def panel(self, slide: Any, box: tuple[float, float, float, float], color: str, shape: Any = None) -> Any:
        """Add a filled rectangle without a border."""
        added = slide.shapes.add_shape(shape or MSO_SHAPE.RECTANGLE, *map(Inches, box))
        added.fill.solid()
        added.fill.fore_color.rgb = RGBColor.from_string(color)
        added.line.fill.background()
        added.shadow.inherit = False
        return added

    def path(self, name: str) -> Path:
        """Return a file that the description names; stop when it is not there."""
        file = self.folder / name
        if not file.is_file():
            stop(f"slide {self.number}: image {name!r} is not a file")
        return file


def _check_size(presentation: Any) -> None:
    wide, high = presentation.slide_width / Inches(1), presentation.slide_height / Inches(1)
    if abs(wide - WIDE) > 0.05 or abs(high - HIGH) > 0.05:
        stop(f"the template is {wide:.2f} × {high:.2f} inches; save it as widescreen, 13.33 × 7.5, first")


def _drop_slides(presentation: Any) -> None:
    ids = presentation.slides._sldIdLst
    for one in list(ids):
        presentation.part.drop_rel(one.rId)
        ids.remove(one)


def _bullet(paragraph: Any, color: str, level: int) -> None:
    properties = paragraph._p.get_or_add_pPr()
    properties.set("marL", str(Inches(0.3 + 0.3 * level)))
    properties.set("indent", str(-Inches(0.25)))
    fill = properties.makeelement(qn("a:buClr"), {})
    fill.append(properties.makeelement(qn("a:srgbClr"), {"val": color}))
    properties.append(fill)
    properties.append(properties.makeelement(qn("a:buChar"), {"char": "–" if level else "•"}))


def _east_asian(run: Any, name: str) -> None:
    properties = run._r.get_or_add_rPr()
    properties.append(properties.makeelement(qn("a:ea"), {"typeface": name}))


def _items(bullets: Any, number: int) -> tuple[list[str], list[int]]:
    """Return texts and levels of bullets: strings, or {"text": ..., "sub": [...]}."""
    if not isinstance(bullets, list) or not bullets:
        stop(f"slide {number}: 'bullets' must be a list of texts")
    texts, levels = [], []
    for bullet in bullets:
        one = bullet if isinstance(bullet, dict) else {"text": bullet}
        texts.append(str(one.get("text", "")))
        levels.append(0)
        for sub in one.get("sub", []):
            texts.append(str(sub))
            levels.append(1)
    return texts, levels


def _need(slide: dict[str, Any], number: int, *keys: str) -> None:
    for key in keys:
        if not slide.get(key):
            stop(f"slide {number} (layout {slide.get('layout')!r}) needs {key!r}")


def title_slide(deck: Deck, spec: dict[str, Any]) -> Any:
    """Title, subtitle and a line with author and date."""
    slide = deck.slide(spec["title"])
    deck.panel(slide, (0, 0, 0.28, HIGH), deck.colors["accent"])
    deck.fill(
        slide.shapes.title,
        [spec["title"]],
        (1.1, 1.7, 10.8, 2.2),
        (48, 44, 40, 36, 32),
        bold=True,
        anchor=MSO_ANCHOR.BOTTOM,
    )
    if spec.get("subtitle"):
        deck.text(slide, [spec["subtitle"]], (1.1, 4.1, 10.8, 1.2), (24, 22, 20), color=deck.colors["muted"])
    if spec.get("line"):
        deck.text(slide, [spec["line"]], (1.1, 6.3, 10.8, 0.5), (16, 14), color=deck.colors["muted"])
    return slide


def section(deck: Deck, spec: dict[str, Any]) -> Any:
    """The beginning of a part, on a coloured ground."""
    slide = deck.slide(spec["title"], back=deck.colors["accent"])
    ink = deck.colors["back"] if deck.colors["back"] != "FFFFFF" else "FFFFFF"
    deck.fill(
        slide.shapes.title,
        [spec["title"]],
        (1.1, 2.2, 11, 1.9),
        (44, 40, 36, 32),
        bold=True,
        color=ink,
        anchor=MSO_ANCHOR.BOTTOM,
    )
    if spec.get("subtitle"):
        deck.text(slide, [spec["subtitle"]], (1.1, 4.3, 11, 1.2), (22, 20, 18), color=ink)
    return slide


def bullets(deck: Deck, spec: dict[str, Any]) -> Any:
    """Title and bullets, with a picture at the right if one is named."""
    slide = deck.slide(spec["title"])
    deck.head(slide, spec["title"])
    texts, levels = _items(spec.get("bullets"), deck.number)
    wide = 6.3 if spec.get("image") else WIDE - 2 * SIDE
    deck.text(
        slide, texts, (SIDE, BODY_TOP, wide, BODY_BOTTOM - BODY_TOP), BODY_SIZES, bullets=True, levels=levels
    )
    if spec.get("image"):
        _picture(deck, slide, spec, (7.4, BODY_TOP, WIDE - SIDE - 7.4, BODY_BOTTOM - BODY_TOP))
    return slide


def two_columns(deck: Deck, spec: dict[str, Any]) -> Any:
    """Two panels with a heading and bullets each."""
    _need(spec, deck.number, "left", "right")
    slide = deck.slide(spec["title"])
    deck.head(slide, spec["title"])
    wide = (WIDE - 2 * SIDE - 0.5) / 2
    sides = [(side, *_items(side.get("bullets"), deck.number)) for side in (spec["left"], spec["right"])]
    high = max(_column_height(texts, wide - 0.9) for _, texts, _ in sides)
    for index, (side, texts, levels) in enumerate(sides):
        left = SIDE + index * (wide + 0.5)
        deck.panel(slide, (left, BODY_TOP, wide, high), deck.colors["panel"])
        color = deck.colors["accent" if index == 0 else "second"]
        deck.panel(slide, (left, BODY_TOP, wide, 0.08), color)
        deck.text(
            slide,
            [str(side.get("heading", ""))],
            (left + 0.25, BODY_TOP + 0.25, wide - 0.5, 0.6),
            (24, 22, 20, 18),
            bold=True,
        )
        deck.text(
            slide,
            texts,
            (left + 0.25, BODY_TOP + 1.0, wide - 0.5, high - 1.2),
            COLUMN_SIZES,
            bullets=True,
            levels=levels,
        )
    return slide


def _column_height(texts: Sequence[str], wide: float) -> float:
    """Return the height of a column that its largest text needs, at most all of the space."""
    size = COLUMN_SIZES[0]
    return min(1.4 + height(texts, size, wide * 72, after=size * 0.9) / 72, BODY_BOTTOM - BODY_TOP)


def image(deck: Deck, spec: dict[str, Any]) -> Any:
    """One large picture with a caption."""
    _need(spec, deck.number, "image")
    slide = deck.slide(spec["title"])
    deck.head(slide, spec["title"])
    caption = 0.5 if spec.get("caption") else 0.0
    _picture(deck, slide, spec, (SIDE, BODY_TOP, WIDE - 2 * SIDE, BODY_BOTTOM - BODY_TOP - caption))
    if caption:
        deck.text(
            slide,
            [spec["caption"]],
            (SIDE, BODY_BOTTOM - 0.45, WIDE - 2 * SIDE, 0.45),
            (14,),
            color=deck.colors["muted"],
            align=PP_ALIGN.CENTER,
        )
    return slide


def _picture(deck: Deck, slide: Any, spec: dict[str, Any], box: tuple[float, float, float, float]) -> None:
    left, top, wide, high = box
    try:
        picture = slide.shapes.add_picture(str(deck.path(spec["image"])), 0, 0)
    except (ValueError, OSError) as error:
        stop(
            f"slide {deck.number}: {spec['image']} is no picture PowerPoint can hold ({error}); use "
            "PNG or JPEG"
        )
    scale = min(Inches(wide) / picture.width, Inches(high) / picture.height)
    picture.width, picture.height = Emu(int(picture.width * scale)), Emu(int(picture.height * scale))
    picture.left = Emu(int(Inches(left) + (Inches(wide) - picture.width) / 2))
    picture.top = Emu(int(Inches(top) + (Inches(high) - picture.height) / 2))
    alt = spec.get("alt") or spec.get("caption") or ""
    picture._element.nvPicPr.cNvPr.set("descr", str(alt))
    if not alt:
        deck.warnings.append(f"slide {deck.number}: the picture has no 'alt' text")


def chart(deck: Deck, spec: dict[str, Any]) -> Any:
    """A native chart that can be edited in PowerPoint, and what to take from it."""
    _need(spec, deck.number, "chart")
    given = spec["chart"]
    kind, x, series = given.get("kind"), given.get("x"), given.get("series")
    if kind not in CHARTS:
        stop(f"slide {deck.number}: chart kind {kind!r}; use one of {', '.join(CHARTS)}")
    if not x or not series or any(len(values) != len(x) for values in series.values()):
        stop(
            f"slide {deck.number}: 'chart' needs 'x' and 'series' with as many numbers each as 'x' has names"
        )
    slide = deck.slide(spec["title"])
    deck.head(slide, spec["title"])
    data = CategoryChartData(number_format=given.get("format", "General"))
    data.categories = [str(one) for one in x]
    for name, values in series.items():
        data.add_series(name, values)
    wide = 8.0 if spec.get("takeaway") else WIDE - 2 * SIDE
    high = BODY_BOTTOM - BODY_TOP
    frame = slide.shapes.add_chart(CHARTS[kind], *map(Inches, (SIDE, BODY_TOP, wide, high)), data)
    frame._element.nvGraphicFramePr.cNvPr.set("descr", str(spec.get("alt") or spec["title"]))
    _style_chart(deck, frame.chart, kind, len(series), len(x))
    if spec.get("takeaway"):
        lines = spec["takeaway"] if isinstance(spec["takeaway"], list) else [spec["takeaway"]]
        deck.panel(slide, (9.15, BODY_TOP, WIDE - SIDE - 9.15, high), deck.colors["panel"])
        deck.text(
            slide,
            [str(line) for line in lines],
            (9.4, BODY_TOP + 0.25, WIDE - SIDE - 9.65, high - 0.5),
            SMALL_SIZES,
            anchor=MSO_ANCHOR.MIDDLE,
        )
    return slide


def _style_chart(deck: Deck, drawn: Any, kind: str, series: int, points: int) -> None:
    drawn.font.size, drawn.font.name = Pt(14), deck.latin
    drawn.font.color.rgb = RGBColor.from_string(deck.colors["muted"])
    drawn.has_title = False
    round_chart = kind in {"pie", "donut"}
    drawn.has_legend = series > 1 or round_chart
    if drawn.has_legend:
        drawn.legend.position = XL_LEGEND_POSITION.RIGHT if round_chart else XL_LEGEND_POSITION.BOTTOM
        drawn.legend.include_in_layout = False
    plot = drawn.plots[0]
    colors = [deck.colors["accent"], deck.colors["second"], *SERIES[2:]]
    if round_chart:
        for index in range(points):
            fill = plot.series[0].points[index].format.fill
            fill.solid()
            fill.fore_color.rgb = RGBColor.from_string(colors[index % len(colors)])
    else:
        for index, one in enumerate(plot.series):
            color = RGBColor.from_string(colors[index % len(colors)])
            if kind == "line":
                one.format.line.color.rgb, one.format.line.width, one.smooth = color, Pt(2.5), False
                one.marker.format.fill.solid()
                one.marker.format.fill.fore_color.rgb = color
            else:
                one.format.fill.solid()
                one.format.fill.fore_color.rgb = color
        drawn.value_axis.major_gridlines.format.line.color.rgb = RGBColor.from_string(deck.colors["grid"])
        drawn.value_axis.format.line.fill.background()
        if kind in {"bar", "barh", "stacked"}:
            plot.gap_width = 60
        if kind == "barh":
            drawn.category_axis.reverse_order = True
    if round_chart or (kind in {"bar", "barh"} and series * points <= 12):
        plot.has_data_labels = True
        plot.data_labels.font.size = Pt(13)
        if round_chart:
            plot.data_labels.show_percentage, plot.data_labels.show_value = True, False
            plot.data_labels.number_format, plot.data_labels.number_format_is_linked = "0%", False
            plot.data_labels.font.color.rgb = RGBColor(0xFF, 0xFF, 0xFF)
        else:
            plot.data_labels.position = XL_LABEL_POSITION.OUTSIDE_END


def table(deck: Deck, spec: dict[str, Any]) -> Any:
    """A native table; numbers stand right."""
    _need(spec, deck.number, "columns", "rows")
    columns, rows = spec["columns"], spec["rows"]
    if any(len(row) != len(columns) for row in rows):
        stop(f"slide {deck.number}: every row of the table needs {len(columns)} cells")
    if len(rows) > 10 or len(columns) > 7:
        deck.warnings.append(
            f"slide {deck.number}: {len(rows)} × {len(columns)} cells are too many to read; show the "
            "important ones"
        )
    slide = deck.slide(spec["title"])
    deck.head(slide, spec["title"])
    line = min(0.78, (BODY_BOTTOM - BODY_TOP) / (len(rows) + 1))
    shape = slide.shapes.add_table(
        len(rows) + 1,
        len(columns),
        Inches(SIDE),
        Inches(BODY_TOP),
        Inches(WIDE - 2 * SIDE),
        Inches(line * (len(rows) + 1)),
    )
    shape._element.nvGraphicFramePr.cNvPr.set("descr", str(spec.get("alt") or spec["title"]))
    size = 20 if len(rows) <= 4 else 18 if len(rows) <= 6 else 16 if len(rows) <= 8 else 14
    for row_number, row in enumerate([columns, *rows]):
        for column, value in enumerate(row):
            cell = shape.table.cell(row_number, column)
            cell.vertical_anchor = MSO_ANCHOR.MIDDLE
            cell.fill.solid()
            color = (
                deck.colors["accent"]
                if row_number == 0
                else deck.colors["panel"]
                if row_number % 2 == 0
                else deck.colors["back"]
            )
            cell.fill.fore_color.rgb = RGBColor.from_string(color)
            ink = (
                "FFFFFF"
                if row_number == 0 and deck.spec.get("theme") != "dark"
                else deck.colors["back"]
                if row_number == 0
                else deck.colors["ink"]
            )
            deck.runs(cell.text_frame.paragraphs[0], str(value), size, ink, bold=row_number == 0)
            number = all(
                re.fullmatch(r"[-+]?[$€£¥]?[\d.,]+ ?[%kMB]?|[-–—]?", str(one[column])) for one in rows
            )
            cell.text_frame.paragraphs[0].alignment = PP_ALIGN.RIGHT if number else PP_ALIGN.LEFT
    return slide


def numbers(deck: Deck, spec: dict[str, Any]) -> Any:
    """Two to four large numbers with what they mean."""
    found = spec.get("numbers")
    if not isinstance(found, list) or not 1 <= len(found) <= 4:
        stop(f'slide {deck.number}: \'numbers\' must be a list of one to four {{"value", "label"}}')
    slide = deck.slide(spec["title"])
    deck.head(slide, spec["title"])
    gap = 0.4
    wide = (WIDE - 2 * SIDE - gap * (len(found) - 1)) / len(found)
    for index, one in enumerate(found):
        left = SIDE + index * (wide + gap)
        deck.panel(slide, (left, 2.2, wide, 3.6), deck.colors["panel"])
        deck.text(
            slide,
            [str(one["value"])],
            (left + 0.15, 2.5, wide - 0.3, 1.3),
            (60, 54, 48, 40, 32),
            bold=True,
            color=deck.colors["accent"],
            align=PP_ALIGN.CENTER,
            anchor=MSO_ANCHOR.MIDDLE,
        )
        lines = [str(one.get("label", "")), *([str(one["note"])] if one.get("note") else [])]
        deck.text(
            slide,
            lines,
            (left + 0.2, 3.95, wide - 0.4, 1.7),
            SMALL_SIZES,
            align=PP_ALIGN.CENTER,
            levels=[0, 1][: len(lines)],
        )
    return slide


def quote(deck: Deck, spec: dict[str, Any]) -> Any:
    """A quotation and who said it."""
    _need(spec, deck.number, "quote")
    slide = deck.slide(spec.get("title") or "Quote")
    deck.fill(
        slide.shapes.title,
        [f"“{spec['quote']}”"],
        (1.4, 1.6, 10.5, 3.6),
        (36, 32, 28, 24),
        anchor=MSO_ANCHOR.MIDDLE,
    )
    deck.panel(slide, (SIDE, 1.6, 0.1, 3.6), deck.colors["second"])
    if spec.get("by"):
        deck.text(slide, [f"— {spec['by']}"], (1.4, 5.4, 10.5, 0.6), (20, 18), color=deck.colors["muted"])
    return slide


def timeline(deck: Deck, spec: dict[str, Any]) -> Any:
    """Three to six steps in a row."""
    steps = spec.get("steps")
    if not isinstance(steps, list) or not 2 <= len(steps) <= 6:
        stop(f'slide {deck.number}: \'steps\' must be a list of two to six {{"when", "text"}}')
    slide = deck.slide(spec["title"])
    deck.head(slide, spec["title"])
    wide = (WIDE - 2 * SIDE) / len(steps)
    deck.panel(slide, (SIDE, 3.56, WIDE - 2 * SIDE, 0.06), deck.colors["muted"])
    for index, step in enumerate(steps):
        left = SIDE + index * wide
        deck.panel(slide, (left + wide / 2 - 0.16, 3.43, 0.32, 0.32), deck.colors["accent"], MSO_SHAPE.OVAL)
        deck.text(
            slide,
            [str(step.get("when", ""))],
            (left + 0.1, 2.6, wide - 0.2, 0.7),
            (24, 22, 20, 18, 16),
            bold=True,
            color=deck.colors["accent"],
            align=PP_ALIGN.CENTER,
            anchor=MSO_ANCHOR.BOTTOM,
        )
        deck.text(
            slide,
            [str(step.get("text", ""))],
            (left + 0.1, 4.0, wide - 0.2, 2.6),
            SMALL_SIZES,
            align=PP_ALIGN.CENTER,
        )
    return slide


LAYOUTS: dict[str, Callable[[Deck, dict[str, Any]], Any]] = {
    "title": title_slide,
    "section": section,
    "bullets": bullets,
    "two_columns": two_columns,
    "image": image,
    "chart": chart,
    "table": table,
    "numbers": numbers,
    "quote": quote,
    "timeline": timeline,
    "closing": section,
}


def build(spec: dict[str, Any], folder: Path, template: Path | None = None) -> Deck:
    """Return the finished deck of a description."""
    slides = spec.get("slides")
    if not isinstance(slides, list) or not slides:
        stop("'slides' must be a list with at least one slide")
    if spec.get("theme", "light") not in THEMES:
        stop(f"'theme' is {spec['theme']!r}; use one of {', '.join(THEMES)}")
    if spec.get("accent") and not re.fullmatch(r"#?[0-9A-Fa-f]{6}", str(spec["accent"])):
        stop(f"'accent' is {spec['accent']!r}; write a colour as #2563A8")
    deck = Deck(spec, folder, template)
    for number, one in enumerate(slides, 1):
        deck.number = number
        if not isinstance(one, dict) or one.get("layout") not in LAYOUTS:
            stop(f"slide {number}: 'layout' must be one of {', '.join(LAYOUTS)}")
        if one["layout"] != "quote":
            _need(one, number, "title")
        slide = LAYOUTS[one["layout"]](deck, one)
        if one.get("notes"):
            slide.notes_slide.notes_text_frame.text = str(one["notes"])
        if one["layout"] not in {"title", "section", "closing"}:
            _footer(deck, slide, one)
    return deck


def _footer(deck: Deck, slide: Any, one: dict[str, Any]) -> None:
    words = f"Source: {one['source']}" if one.get("source") else str(deck.spec.get("footer", ""))
    if words and not words.isascii():
        words = words.removeprefix("Source: ")
    if words:
        deck.text(slide, [words], (SIDE, 6.95, 10.5, 0.35), (12,), color=deck.colors["muted"])
    deck.text(
        slide,
        [str(deck.number)],
        (WIDE - SIDE - 0.8, 6.95, 0.8, 0.35),
        (12,),
        color=deck.colors["muted"],
        align=PP_ALIGN.RIGHT,
    )


def main() -> None:
    """Read the description, build the deck, write it and print a JSON report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path, help="JSON file; its keys are in references/deck-spec.md")
    parser.add_argument("--out", type=Path, required=True, help="the .pptx to write")
    parser.add_argument("--template", type=Path, help="a .pptx whose master, theme and logo are used")
    options = parser.parse_args()
    if options.out.suffix.lower() != ".pptx":
        stop(f"--out must end in .pptx, not {options.out.name!r}")
    if options.template and not options.template.is_file():
        stop(f"--template {options.template} is not a file")
    try:
        spec = json.loads(options.spec.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        stop(f"{options.spec} cannot be read: {error}")
    if not isinstance(spec, dict):
        stop(f"{options.spec} must hold an object with 'slides'")
    deck = build(spec, options.spec.resolve().parent, options.template)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    deck.presentation.save(str(options.out))
    report = {"file": str(options.out), "slides": len(spec["slides"]), "warnings": deck.warnings}
    print(json.dumps(report, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
