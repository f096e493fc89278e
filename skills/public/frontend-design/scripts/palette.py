"""Makes the colours of a page from one colour: CSS variables for light and dark, contrasts checked."""

import argparse
import json
from pathlib import Path

from _color import Rgb, contrast, from_oklch, parse_hex, stop, to_hex, to_oklch

TEXT_CONTRAST, PART_CONTRAST = 4.5, 3.0
PAIRS = (
    ("text", "background", TEXT_CONTRAST),
    ("text", "surface", TEXT_CONTRAST),
    ("muted", "background", TEXT_CONTRAST),
    ("muted", "surface", TEXT_CONTRAST),
    ("on-accent", "accent", TEXT_CONTRAST),
    ("accent", "background", TEXT_CONTRAST),
    ("danger", "background", TEXT_CONTRAST),
    ("success", "background", TEXT_CONTRAST),
    ("border-strong", "background", PART_CONTRAST),
)


def main() -> None:
    """Print or write the variables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="the brand colour, as #2563a8")
    parser.add_argument("--out", type=Path, help="write the CSS here; absent: print it")
    parser.add_argument("--json", action="store_true", help="print colours and contrasts as JSON")
    options = parser.parse_args()
    base = parse_hex(options.base)
    if base is None:
        stop(f"{options.base!r} is no colour; write it as #2563a8")
    schemes = {"light": scheme(base, dark=False), "dark": scheme(base, dark=True)}
    checked = {
        name: {f"{a} on {b}": round(contrast(colors[a], colors[b]), 2) for a, b, _ in PAIRS}
        for name, colors in schemes.items()
    }
    css = _css(schemes)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(css, encoding="utf-8")
    if options.json:
        colors = {name: {key: to_hex(color) for key, color in one.items()} for name, one in schemes.items()}
        print(json.dumps({"colors": colors, "contrast": checked}, indent=1))
    elif options.out:
        print(f"written to {options.out}")
    else:
        print(css)


def scheme(base: Rgb, *, dark: bool) -> dict[str, Rgb]:
    """Return the colours of one scheme; neutrals carry a trace of the base, contrasts are met."""
    _, chroma, hue = to_oklch(base)
    tint = min(chroma, 0.02)
    steps = (0.17, 0.215, 0.27, 0.36, 0.95, 0.74) if dark else (0.988, 0.965, 0.93, 0.87, 0.22, 0.47)
    background, surface, raised, border, text, muted = (
        from_oklch(step, tint * (1 if step < 0.9 else 0.5), hue) for step in steps
    )
    white, ink = (1.0, 1.0, 1.0), from_oklch(0.17, tint, hue)
    accent = _until(base, surface, TEXT_CONTRAST, lighter=dark)
    colors = {
        "background": background,
        "surface": surface,
        "raised": raised,
        "border": border,
        "border-strong": _until(from_oklch(0.6, tint, hue), background, PART_CONTRAST, lighter=dark),
        "text": text,
        "muted": _until(muted, surface, TEXT_CONTRAST, lighter=dark),
        "accent": accent,
        "on-accent": white if contrast(white, accent) >= TEXT_CONTRAST else ink,
        "accent-soft": from_oklch(0.29 if dark else 0.94, min(chroma, 0.05), hue),
        "danger": _until(from_oklch(0.55, 0.2, 27), surface, TEXT_CONTRAST, lighter=dark),
        "success": _until(from_oklch(0.52, 0.13, 150), surface, TEXT_CONTRAST, lighter=dark),
    }
    return {name: parse_hex(to_hex(color)) or color for name, color in colors.items()}


def _until(color: Rgb, back: Rgb, wanted: float, *, lighter: bool) -> Rgb:
    """Move a colour's lightness until it stands out from `back`."""
    lightness, chroma, hue = to_oklch(color)
    while contrast(color, back) < wanted + 0.1 and (lightness < 0.99 if lighter else lightness > 0.02):
        lightness += 0.01 if lighter else -0.01
        color = from_oklch(lightness, chroma, hue)
    return color


def _css(schemes: dict[str, dict[str, Rgb]]) -> str:
    def block(colors: dict[str, Rgb], indent: str) -> str:
        return "\n".join(f"{indent}--{name}: {to_hex(color)};" for name, color in colors.items())

    return (
        f":root {{\n  color-scheme: light dark;\n{block(schemes['light'], '  ')}\n}}\n"
        f"@media (prefers-color-scheme: dark) {{\n  :root {{\n{block(schemes['dark'], '    ')}\n  }}\n}}\n"
    )


if __name__ == "__main__":
    main()
