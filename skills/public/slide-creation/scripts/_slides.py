"""Reads the shapes of a presentation with the position, colours and text sizes that a viewer would use."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from _common import stop, stop_missing

try:
    from pptx import Presentation
    from pptx.enum.dml import MSO_COLOR_TYPE, MSO_FILL
    from pptx.enum.shapes import MSO_SHAPE_TYPE
    from pptx.exc import PackageNotFoundError
    from pptx.opc.constants import RELATIONSHIP_TYPE
    from pptx.oxml.ns import qn
except ImportError as error:  # python-pptx itself imports pillow
    stop_missing("pillow" if error.name == "PIL" else "python-pptx")

EMU = 914400
DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
DEFAULT_SIZE = {"TITLE": 44.0, "CENTER_TITLE": 60.0, "SUBTITLE": 24.0, "BODY": 28.0, "OBJECT": 28.0}


@dataclass(frozen=True, slots=True)
class Placed:
    """A shape with its box in inches."""

    shape: Any
    left: float
    top: float
    width: float
    height: float

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Return the edges: left, top, right, bottom."""
        return self.left, self.top, self.left + self.width, self.top + self.height


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of one look."""

    text: str
    size: float
    bold: bool
    color: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph with the space around it in points."""

    runs: tuple[Run, ...]
    align: str
    bullet: str
    indent: float
    after: float

    @property
    def text(self) -> str:
        """Return the characters without their look."""
        return "".join(run.text for run in self.runs)

    @property
    def size(self) -> float:
        """Return the size of the largest characters in points."""
        return max((run.size for run in self.runs), default=12.0)


def open_deck(path: Path) -> Any:
    """Return the presentation in a file; stop when it is none."""
    if not path.is_file():
        stop(f"{path} is not a file")
    try:
        return Presentation(str(path))
    except (PackageNotFoundError, KeyError, ValueError) as error:
        stop(f"{path} is no .pptx presentation: {error}")


def theme_colors(presentation: Any) -> dict[str, str]:
    """Return the colours of the theme by their names: dk1, lt1, accent1 ..."""
    try:
        theme = presentation.slide_master.part.part_related_by(RELATIONSHIP_TYPE.THEME)
    except KeyError:
        return {}
    scheme = ElementTree.fromstring(theme.blob).find(f".//{DRAWING}clrScheme")
    found = {}
    for entry in scheme if scheme is not None else ():
        color = entry[0]
        found[entry.tag.removeprefix(DRAWING)] = color.get("lastClr") or color.get("val", "000000")
    return found | {"tx1": found.get("dk1", "000000"), "bg1": found.get("lt1", "FFFFFF")}


def placed(shapes: Any, scale: float = 1.0, shift: tuple[float, float] = (0.0, 0.0)) -> Iterator[Placed]:
    """Yield every shape, those in groups too, from back to front."""
    for shape in shapes:
        if shape.left is None:
            continue
        left, top = shape.left / EMU * scale + shift[0], shape.top / EMU * scale + shift[1]
        if shape.shape_type == MSO_SHAPE_TYPE.GROUP:
            transform = shape._element.grpSpPr.find(qn("a:xfrm"))
            inner = transform.find(qn("a:chOff")) if transform is not None else None
            extent = transform.find(qn("a:chExt")) if transform is not None else None
            if inner is None or extent is None or not int(extent.get("cx")):
                continue
            factor = scale * shape.width / int(extent.get("cx"))
            start = (left - int(inner.get("x")) / EMU * factor, top - int(inner.get("y")) / EMU * factor)
            yield from placed(shape.shapes, factor, start)
        else:
            yield Placed(shape, left, top, shape.width / EMU * scale, shape.height / EMU * scale)


def fill_color(fill: Any, theme: dict[str, str]) -> str | None:
    """Return the colour of a solid fill as RRGGBB."""
    return color_of(fill.fore_color, theme) if fill.type == MSO_FILL.SOLID else None


def shape_fill(shape: Any, theme: dict[str, str]) -> str | None:
    """Return the colour behind the text of a shape."""
    return fill_color(shape.fill, theme) if hasattr(shape, "fill") else None


def background(slide: Any, theme: dict[str, str]) -> str:
    """Return the colour of a slide: its own, that of its layout or master, else white."""
    for part in (slide, slide.slide_layout, slide.slide_layout.slide_master):
        # Asking python-pptx for the fill of an inherited background would write one into the file.
        if (
            part._element.cSld.find(qn("p:bg")) is not None
            and part._element.cSld.find(f"{qn('p:bg')}/{qn('p:bgPr')}") is not None
        ):
            color = fill_color(part.background.fill, theme)
            if color:
                return color
    return theme.get("lt1", "FFFFFF")


def color_of(color: Any, theme: dict[str, str]) -> str | None:
    """Return a colour as RRGGBB, those of the theme resolved."""
    if color is None or color.type is None:
        return None
    if color.type == MSO_COLOR_TYPE.RGB:
        return str(color.rgb)
    if color.type == MSO_COLOR_TYPE.SCHEME:
        names = {
            "TEXT_1": "dk1",
            "TEXT_2": "dk2",
            "BACKGROUND_1": "lt1",
            "BACKGROUND_2": "lt2",
            "DARK_1": "dk1",
            "DARK_2": "dk2",
            "LIGHT_1": "lt1",
            "LIGHT_2": "lt2",
        }
        name = color.theme_color.name
        return theme.get(names.get(name, name.lower().replace("_", "")))
    return None


def paragraphs(shape: Any, frame: Any, theme: dict[str, str], ink: str | None = None) -> list[Paragraph]:
    """Return the paragraphs of a text frame with the looks that their runs have."""
    default = 18.0
    if shape is not None and shape.is_placeholder:
        default = DEFAULT_SIZE.get(shape.placeholder_format.type.name, 18.0)
    found = []
    for paragraph in frame.paragraphs:
        base = paragraph.font.size.pt if paragraph.font.size else default
        runs = []
        for run in paragraph.runs:
            size = run.font.size.pt if run.font.size else base
            color = color_of(run.font.color if run.font.fill.type is not None else None, theme)
            runs.append(Run(run.text, size, bool(run.font.bold), color or ink or theme.get("dk1", "000000")))
        properties = paragraph._p.pPr
        bullet = properties.find(qn("a:buChar")) if properties is not None else None
        indent = int(properties.get("marL", 0)) / 12700 if properties is not None else 0.0
        align = paragraph.alignment.name if paragraph.alignment is not None else "LEFT"
        after = paragraph.space_after.pt if paragraph.space_after is not None else 0.0
        found.append(
            Paragraph(tuple(runs), align, bullet.get("char") if bullet is not None else "", indent, after)
        )
    return found
