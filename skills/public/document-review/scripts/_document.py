"""Reads a document as numbered blocks, so that a finding can name its place and quote it exactly."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from _common import stop, stop_missing

try:
    import docx
    from docx.opc.exceptions import PackageNotFoundError
    from docx.table import Table
except ImportError:
    stop_missing("python-docx")
try:
    import pypdf
    from pypdf.errors import PyPdfError
except ImportError:
    stop_missing("pypdf")

KNOWN = (".docx", ".pdf", ".md", ".markdown", ".txt")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, heading or table row."""

    id: str
    kind: str
    text: str
    place: str
    """Page of a PDF, line of a text, nearest heading in Word."""

    def as_dict(self) -> dict[str, str]:
        """Return the block for JSON."""
        return asdict(self)


def read_blocks(path: Path) -> list[Block]:
    """Return the blocks of a document; stop when it cannot be read or holds no text."""
    if not path.is_file():
        stop(f"{path} is not a file")
    suffix = path.suffix.lower()
    if suffix not in KNOWN:
        stop(f"{path.name} is of no known kind; known are {', '.join(KNOWN)}")
    try:
        found = _docx(path) if suffix == ".docx" else _pdf(path) if suffix == ".pdf" else _text(path)
    except (PackageNotFoundError, PyPdfError, OSError, ValueError, KeyError) as error:
        stop(f"{path.name} cannot be read: {error}")
    blocks = [
        Block(f"P{number}", kind, text, place)
        for number, (kind, text, place) in enumerate(
            ((k, " ".join(t.split()), p) for k, t, p in found if t.strip()), 1
        )
    ]
    if not blocks:
        stop(f"{path.name} holds no text; a scanned document needs text recognition (OCR) first")
    return blocks


def _docx(path: Path) -> list[tuple[str, str, str]]:
    found, heading = [], "beginning"
    for item in docx.Document(str(path)).iter_inner_content():
        if isinstance(item, Table):
            for row in item.rows:
                cells = dict.fromkeys(cell.text.strip() for cell in row.cells)
                found.append(("table row", " | ".join(cells), heading))
            continue
        kind = (
            "heading"
            if item.style is not None and item.style.name.startswith(("Heading", "Title"))
            else "paragraph"
        )
        heading = item.text.strip() if kind == "heading" and item.text.strip() else heading
        found.append((kind, item.text, heading))
    return found


def _pdf(path: Path) -> list[tuple[str, str, str]]:
    reader = pypdf.PdfReader(str(path))
    if reader.is_encrypted and not reader.decrypt(""):
        stop(f"{path.name} is protected by a password; ask for an open copy")
    found = []
    for number, page in enumerate(reader.pages, 1):
        for paragraph in re.split(r"\n\s*\n|(?<=[.;:。；：])[ \t]*\n", page.extract_text()):
            found.append(("paragraph", paragraph, f"page {number}"))
    return found


def _text(path: Path) -> list[tuple[str, str, str]]:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    found: list[tuple[str, str, str]] = []
    start = 0
    for number in range(len(lines) + 1):
        line = lines[number] if number < len(lines) else ""
        alone = re.match(r"\s*(#{1,6}\s|[-*+]\s|\d+[.)]\s|\||\(?[a-z]\)\s)", line)
        if not line.strip() or alone:
            if lines[start:number]:
                found.append(_piece(lines[start:number], start))
            start = number if line.strip() else number + 1
    return found


def _piece(lines: list[str], start: int) -> tuple[str, str, str]:
    text = "\n".join(lines)
    kind = "heading" if text.lstrip().startswith("#") else "paragraph"
    return kind, text.lstrip("# ") if kind == "heading" else text, f"line {start + 1}"


def comments(path: Path) -> list[dict[str, Any]]:
    """Return the comments that a Word document has already."""
    if path.suffix.lower() != ".docx":
        return []
    return [{"author": comment.author, "text": comment.text} for comment in docx.Document(str(path)).comments]


def tracked_changes(path: Path) -> int:
    """Return how many insertions and deletions a Word document still shows as tracked."""
    if path.suffix.lower() != ".docx":
        return 0
    body = docx.Document(str(path)).element.body
    return len(body.xpath(".//w:ins | .//w:del"))


def normal(text: str) -> str:
    """Return text with one kind of quotes, dashes and spaces, for comparing quotations."""
    table = str.maketrans(
        {"“": '"', "”": '"', "„": '"', "’": "'", "‘": "'", "–": "-", "—": "-", "\u00a0": " "}
    )
    return " ".join(text.translate(table).split())
