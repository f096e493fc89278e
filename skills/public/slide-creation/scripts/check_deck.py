"""Checks a .pptx for what an audience would notice: overflow, overlap, small or pale text, missing titles."""

import argparse
import json
from itertools import combinations
from pathlib import Path
from typing import Any

from _slides import EMU, Placed, background, open_deck, paragraphs, placed, shape_fill, theme_colors
from _text import LINE_HEIGHT, wrap

MIN_POINTS, MIN_FOOTER_POINTS = 14.0, 10.0
MAX_WORDS = 90
CONTRAST, CONTRAST_LARGE, LARGE_POINTS = 4.5, 3.0, 18.0


def main() -> None:
    """Print the findings as JSON, errors before warnings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deck", type=Path, help="the .pptx")
    options = parser.parse_args()

    presentation = open_deck(options.deck)
    theme = theme_colors(presentation)
    size = (presentation.slide_width / EMU, presentation.slide_height / EMU)
    findings: list[dict[str, Any]] = []
    titles: dict[str, int] = {}
    for number, slide in enumerate(presentation.slides, 1):
        found = [*_title(slide, number, titles), *_slide(slide, size, theme)]
        findings += [{"slide": number, "level": level, "problem": words} for level, words in found]
    findings.sort(key=lambda one: (one["level"] != "error", one["slide"]))
    errors = sum(one["level"] == "error" for one in findings)
    report = {
        "slides": len(presentation.slides),
        "errors": errors,
        "warnings": len(findings) - errors,
        "findings": findings,
    }
    print(json.dumps(report, ensure_ascii=False, indent=1))


def _title(slide: Any, number: int, titles: dict[str, int]) -> list[tuple[str, str]]:
    shape = slide.shapes.title
    words = shape.text_frame.text.strip() if shape is not None else ""
    if not words:
        return [("error", "the slide has no title")]
    if words in titles:
        return [("warning", f"the same title as slide {titles[words]}: {words[:60]!r}")]
    titles[words] = number
    return []


def _slide(slide: Any, size: tuple[float, float], theme: dict[str, str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    shapes = list(placed(slide.shapes))
    back = background(slide, theme)
    words = 0
    for index, one in enumerate(shapes):
        name = _name(one)
        left, top, right, bottom = one.box
        if left < -0.02 or top < -0.02 or right > size[0] + 0.02 or bottom > size[1] + 0.02:
            found.append(("error", f"{name} reaches beyond the slide"))
        if hasattr(one.shape, "image") and not one.shape._element.nvPicPr.cNvPr.get("descr"):
            found.append(("warning", f"{name} has no alternative text"))
        if one.shape.has_text_frame:
            text = one.shape.text_frame.text
            if one.shape.is_placeholder and not text.strip():
                found.append(("error", f"{name} is an empty placeholder; remove it"))
            words += len(text.split()) + sum(ord(character) > 0x2E80 for character in text) // 2
            found += _text(one, name, size, theme, _behind(one, shapes[:index], back, theme))
    if words > MAX_WORDS:
        found.append(
            ("warning", f"{words} words; keep a slide below {MAX_WORDS} and move the rest into the notes")
        )
    return found + _overlaps(shapes)


def _text(
    one: Placed, name: str, size: tuple[float, float], theme: dict[str, str], back: str
) -> list[tuple[str, str]]:
    frame = one.shape.text_frame
    texts = [paragraph for paragraph in paragraphs(one.shape, frame, theme) if paragraph.text.strip()]
    if not texts:
        return []
    found = []
    room = (one.width - (frame.margin_left + frame.margin_right) / EMU) * 72
    need = sum(
        len(wrap(paragraph.text, paragraph.size, max(room - paragraph.indent, 20), paragraph.runs[0].bold))
        * paragraph.size
        * LINE_HEIGHT
        + (paragraph.after if index < len(texts) - 1 else 0)
        for index, paragraph in enumerate(texts)
    )
    space = one.height * 72
    if need > space * 1.06 + 4:
        found.append(("error", f"{name} needs {need / space:.0%} of its height; cut words or make it larger"))
    smallest = min(run.size for paragraph in texts for run in paragraph.runs)
    limit = MIN_FOOTER_POINTS if one.top > size[1] * 0.9 else MIN_POINTS
    if smallest < limit:
        found.append(("warning", f"{name} is set in {smallest:g} points; use {limit:g} or more"))
    for run in {(run.color, run.size) for paragraph in texts for run in paragraph.runs if run.text.strip()}:
        ratio = contrast(run[0], back)
        if ratio < (CONTRAST_LARGE if run[1] >= LARGE_POINTS else CONTRAST):
            found.append(
                ("error", f"{name}: #{run[0]} on #{back} has a contrast of {ratio:.1f}; it is hard to read")
            )
    return found


def _behind(one: Placed, below: list[Placed], back: str, theme: dict[str, str]) -> str:
    """Return the colour behind a text: its own fill, or that of the topmost shape that holds it."""
    own = shape_fill(one.shape, theme)
    if own:
        return own
    left, top, right, bottom = one.box
    for other in reversed(below):
        color = shape_fill(other.shape, theme) if not hasattr(other.shape, "image") else None
        a, b, c, d = other.box
        if color and a <= left + 0.05 and b <= top + 0.05 and c >= right - 0.05 and d >= bottom - 0.05:
            return color
    return back


def _overlaps(shapes: list[Placed]) -> list[tuple[str, str]]:
    solid = [one for one in shapes if _has_content(one)]
    found = []
    for a, b in combinations(solid, 2):
        wide = min(a.box[2], b.box[2]) - max(a.box[0], b.box[0])
        high = min(a.box[3], b.box[3]) - max(a.box[1], b.box[1])
        if wide > 0.1 and high > 0.1 and wide * high > 0.05 * min(a.width * a.height, b.width * b.height):
            found.append(("error", f"{_name(a)} and {_name(b)} overlap"))
    return found


def _has_content(one: Placed) -> bool:
    if one.shape.has_text_frame:
        return bool(one.shape.text_frame.text.strip())
    return (
        hasattr(one.shape, "image")
        or getattr(one.shape, "has_chart", False)
        or getattr(one.shape, "has_table", False)
    )


def _name(one: Placed) -> str:
    text = one.shape.text_frame.text.strip() if one.shape.has_text_frame else ""
    return f"text {text[:40]!r}" if text else one.shape.name


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours as WCAG defines it."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[index : index + 2], 16) / 255 for index in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


if __name__ == "__main__":
    main()
