"""Measures and wraps text with the fonts of this machine, so that slides can be fitted, checked and drawn."""

import functools
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _common import stop_missing

try:
    from PIL import ImageFont
except ImportError:
    stop_missing("pillow")

FONT_FOLDERS = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), Path("~/.fonts").expanduser())
LATIN = {
    False: ("LiberationSans-Regular.ttf", "Arial.ttf", "DejaVuSans.ttf"),
    True: ("LiberationSans-Bold.ttf", "Arial_Bold.ttf", "DejaVuSans-Bold.ttf"),
}
CHINESE = {
    False: ("NotoSansCJK-Regular.ttc", "SourceHanSansSC-Regular.otf", "wqy-microhei.ttc"),
    True: ("NotoSansCJK-Bold.ttc", "SourceHanSansSC-Bold.otf", "NotoSansCJK-Regular.ttc", "wqy-microhei.ttc"),
}
LINE_HEIGHT = 1.2
MEASURE_SIZE = 100


@functools.cache
def _files() -> dict[str, Path]:
    return {
        file.name: file for folder in FONT_FOLDERS if folder.is_dir() for file in folder.rglob("*.[to]t[fc]")
    }


@functools.cache
def font(size: int, bold: bool, chinese: bool) -> Any:
    """Return the nearest installed font of a size in pixels."""
    names = [*CHINESE[bold], *LATIN[bold]] if chinese else LATIN[bold]
    for name in names:
        if name in _files():
            return ImageFont.truetype(str(_files()[name]), size)
    return ImageFont.load_default(size)


def _scale(bold: bool) -> float:
    """Return how much narrower Arial is than the font that stands in for it."""
    return 0.9 if not any(name in _files() for name in LATIN[bold][:2]) else 1.0


def is_wide(character: str) -> bool:
    """Say whether a character needs a Chinese font."""
    return unicodedata.east_asian_width(character) in {"W", "F"}


def pieces(text: str) -> list[tuple[str, bool]]:
    """Return runs of characters with whether they need a Chinese font."""
    found: list[tuple[str, bool]] = []
    for character in text:
        wide = is_wide(character)
        if found and found[-1][1] == wide:
            found[-1] = (found[-1][0] + character, wide)
        else:
            found.append((character, wide))
    return found


@functools.cache
def _units(text: str, bold: bool) -> float:
    return sum(
        font(MEASURE_SIZE, bold, wide).getlength(part) * (1 if wide else _scale(bold))
        for part, wide in pieces(text)
    )


def width(text: str, points: float, bold: bool = False) -> float:
    """Return the width of one line in points."""
    return _units(text, bold) * points / MEASURE_SIZE


def wrap(text: str, points: float, room: float, bold: bool = False) -> list[str]:
    """Return the lines of `text` in `room` points; breaks at spaces and between Chinese characters."""
    lines = []
    for paragraph in re.split(r"[\n\v]", text):
        line = ""
        for word in re.findall(r"\s+|[^\s\u2e80-\uffef]+|[\u2e80-\uffef]", paragraph):
            if line and width((line + word).rstrip(), points, bold) > room:
                lines.append(line.rstrip())
                line = ""
            line += word if line else word.lstrip()
        lines.append(line.rstrip())
    return lines


def height(
    texts: Sequence[str], points: float, room: float, *, bold: bool = False, after: float = 0.0
) -> float:
    """Return the height of paragraphs in points, with `after` points below each but the last."""
    lines = sum(len(wrap(text, points, room, bold)) for text in texts)
    return lines * points * LINE_HEIGHT + after * max(len(texts) - 1, 0)


def fit(
    texts: Sequence[str], sizes: Sequence[float], room: tuple[float, float], *, bold: bool = False
) -> float | None:
    """Return the largest of `sizes` at which the paragraphs fit `room` (width, height) in points, or None."""
    for size in sizes:
        if height(texts, size, room[0], bold=bold, after=size * 0.5) <= room[1]:
            return size
    return None
