"""Colours: hexadecimal, OKLCH and the contrast ratio of WCAG."""

import math
import re
import sys
from typing import NoReturn

HEX = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
Rgb = tuple[float, float, float]


def stop(message: str) -> NoReturn:
    """Say what was wrong and leave with exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def parse_hex(text: str) -> Rgb | None:
    """Return red, green and blue from 0 to 1, or None for another notation."""
    match = HEX.fullmatch(text.strip())
    if not match:
        return None
    digits = match[1] if len(match[1]) == 6 else "".join(digit * 2 for digit in match[1])
    red, green, blue = (int(digits[index : index + 2], 16) / 255 for index in (0, 2, 4))
    return red, green, blue


def to_hex(color: Rgb) -> str:
    """Return a colour as #rrggbb."""
    return "#" + "".join(f"{round(min(max(part, 0), 1) * 255):02x}" for part in color)


def contrast(first: Rgb, second: Rgb) -> float:
    """Return the contrast ratio, from 1 to 21."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def _encoded(part: float) -> float:
    return part * 12.92 if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055


def _luminance(color: Rgb) -> float:
    red, green, blue = map(_linear, color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def to_oklch(color: Rgb) -> tuple[float, float, float]:
    """Return lightness (0 to 1), chroma and hue in degrees."""
    red, green, blue = map(_linear, color)
    long = math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue)
    middle = math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue)
    short = math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue)
    lightness = 0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short
    a = 1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short
    b = 0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short
    return lightness, math.hypot(a, b), math.degrees(math.atan2(b, a)) % 360


def from_oklch(lightness: float, chroma: float, hue: float) -> Rgb:
    """Return the nearest colour that a screen can show, with less chroma where needed."""
    while True:
        a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
        long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
        middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
        short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
        parts = (
            4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
        )
        if chroma <= 0.002 or all(-0.0005 <= part <= 1.0005 for part in parts):
            red, green, blue = (_encoded(min(max(part, 0.0), 1.0)) for part in parts)
            return red, green, blue
        chroma *= 0.95
