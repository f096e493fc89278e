"""The look of all charts: colours, fonts and number formats."""

from collections.abc import Callable
from typing import Any

from _common import stop_missing

try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import font_manager, pyplot
except ImportError:
    stop_missing("matplotlib")

PALETTES = {
    "default": ["#2563a8", "#e07b39", "#3a8f5c", "#8757a5", "#c9a227", "#c44e6a", "#4aa3b5", "#7a7a7a"],
    "colorblind": ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a400", "#555555"],
    "mono": ["#1f3a5f", "#4a6a94", "#7d9abf", "#aec3dd", "#5b5b5b", "#8c8c8c", "#b5b5b5", "#d6d6d6"],
}
SIZES = {"wide": (10.0, 5.6), "standard": (8.0, 5.4), "square": (6.5, 6.5), "tall": (6.0, 8.5)}
FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "PingFang SC",
)
INK, GREY, LIGHT, GRID = "#222222", "#666666", "#c9cdd3", "#e3e6ea"


def has_chinese_font() -> bool:
    """Say whether a font with Chinese characters is installed."""
    return len(_installed()) > 1


def _installed() -> list[str]:
    known = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in FONTS if name in known]


def apply() -> None:
    """Set the style for everything that is drawn afterwards; the same input gives the same files."""
    pyplot.rcParams.update(
        {
            "font.family": _installed() or ["sans-serif"],
            "font.size": 11,
            "axes.edgecolor": LIGHT,
            "axes.labelcolor": GREY,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.unicode_minus": False,
            "grid.color": GRID,
            "xtick.color": GREY,
            "ytick.color": GREY,
            "legend.frameon": False,
            "svg.hashsalt": "chart",
            "svg.fonttype": "path",
        }
    )


def formatter(spec: dict[str, Any]) -> Callable[[float, Any], str]:
    """Return how numbers are written: `format` number, compact, percent, and a `unit` before or after."""
    kind, unit = spec.get("format", "number"), str(spec.get("unit", ""))

    def write(value: float, _: Any = None) -> str:
        if kind == "percent":
            return f"{value * 100:.1f}".rstrip("0").rstrip(".") + "%"
        text = _compact(abs(value)) if kind == "compact" else _plain(abs(value))
        sign = "-" if value < 0 and text != "0" else ""
        if unit in {"$", "€", "£", "¥", "￥"}:
            return f"{sign}{unit}{text}"
        return f"{sign}{text} {unit}".rstrip() if unit.isascii() else f"{sign}{text}{unit}"

    return write


def _plain(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    digits = 0 if value >= 1000 else 1 if value >= 10 else 2
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _compact(value: float) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + letter
    return _plain(value)
