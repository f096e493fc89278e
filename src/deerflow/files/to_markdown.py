"""Converts a document on standard input to Markdown on standard output: a separate program.

Documents are untrusted and may be malicious. So this runs as a separate process with hard limits on time,
memory and files, is started as a script, and imports nothing of DeerFlow. The libraries are slow to import
and are imported only here, each when it is needed.
"""

import io
import logging
import os
import resource
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

MAX_MEMORY = 1536 * 1024 * 1024
MAX_CPU_SECONDS = 60
MAX_WRITTEN_FILE = 64 * 1024 * 1024
MAX_UNPACKED = 400 * 1024 * 1024
MAX_MEMBERS = 20_000
MAX_PAGES = 3000
MAX_ROWS = 5000
MAX_SCANNED_ROWS = 50_000
MAX_COLUMNS = 100
MAX_CELL_CHARS = 1000
FAILED = 3


class UnreadableError(Exception):
    """The document cannot be read; the message says why."""


def main(kind: str, pdf_converter: str, max_chars: int) -> int:
    """Convert standard input; return the exit code, and write the reason of a failure to standard error."""
    for name, limit in (
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_CPU, MAX_CPU_SECONDS),
        (resource.RLIMIT_FSIZE, MAX_WRITTEN_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(name, (limit, limit))
    os.nice(10)
    logging.disable()  # standard error carries only the reason
    try:
        parts = READERS[kind](sys.stdin.buffer, pdf_converter)
        written = _write(parts, max_chars)
    except UnreadableError as error:
        return _failed(str(error))
    except MemoryError:
        return _failed("it needs more memory than a document may")
    except RecursionError:
        return _failed("it is nested too deeply")
    except Exception as error:  # the libraries raise anything on a damaged file
        return _failed(f"it cannot be read ({type(error).__name__}: {str(error)[:200]})")
    return 0 if written else _failed("there is no text in it; it may be a scan")


def _failed(reason: str) -> int:
    sys.stderr.write(" ".join(reason.split()))
    return FAILED


def _write(parts: Iterable[str], max_chars: int) -> int:
    """Write the parts as they come, up to a limit; return the number of characters other than headings."""
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="replace")
    size = text_chars = 0
    for part in parts:
        text = part.rstrip() + "\n\n"
        out.write(text[: max_chars - size])
        size += len(text)
        text_chars += len(part.strip()) if not part.startswith("## ") or "\n" in part.strip() else 0
        if size >= max_chars:
            out.write("\n\n[The document goes on; the rest was left out.]\n")
            break
    out.flush()
    return text_chars


def _pdf(file: Any, converter: str) -> Iterator[str]:
    if converter != "pypdf" and (found := _other_pdf(file, converter)) is not None:
        yield found
        return
    reader = import_module("pypdf").PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise UnreadableError("it is protected by a password")
    for number, page in enumerate(reader.pages, start=1):
        if number > MAX_PAGES:
            yield f"[Only the first {MAX_PAGES} pages are shown.]"
            return
        yield f"## Page {number}\n\n{page.extract_text()}".rstrip()


def _other_pdf(file: Any, converter: str) -> str | None:
    """Use a converter that the operator installed; None when there is none, and pypdf is used."""
    if converter in ("auto", "pymupdf4llm") and find_spec("pymupdf4llm") is not None:
        document = import_module("pymupdf").open(stream=file.read(), filetype="pdf")
        return str(import_module("pymupdf4llm").to_markdown(document))
    if converter == "markitdown" and find_spec("markitdown") is not None:
        found = import_module("markitdown").MarkItDown().convert_stream(file, file_extension=".pdf")
        return str(found.text_content)
    return None


def _word(file: Any, _: str) -> Iterator[str]:
    _check_zip(file)
    mammoth = import_module("mammoth")
    # Pictures would become megabytes of base64 that no model reads.
    found = mammoth.convert_to_html(file, convert_image=mammoth.images.img_element(lambda image: {}))
    yield str(import_module("markdownify").markdownify(found.value, heading_style="ATX", strip=["img"]))


def _slides(file: Any, _: str) -> Iterator[str]:
    _check_zip(file)
    deck = import_module("pptx").Presentation(file)
    for number, slide in enumerate(deck.slides, start=1):
        title = slide.shapes.title
        heading = _line(title.text_frame.text) if title is not None and title.has_text_frame else ""
        lines = [f"## Slide {number}" + (f": {heading}" if heading else ""), ""]
        for shape in slide.shapes:
            if title is None or shape.shape_id != title.shape_id:
                lines += _shape(shape, depth=0)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            notes = slide.notes_slide.notes_text_frame.text.strip()
            lines += ["", f"Notes: {notes}"] if notes else []
        yield "\n".join(lines)


def _shape(shape: Any, *, depth: int) -> list[str]:
    if getattr(shape, "has_table", False):
        return ["", *_table([[cell.text for cell in row.cells] for row in shape.table.rows]), ""]
    if getattr(shape, "has_text_frame", False):
        paragraphs = shape.text_frame.paragraphs
        return [f"{'  ' * each.level}- {_line(each.text)}" for each in paragraphs if each.text.strip()]
    members = getattr(shape, "shapes", None)  # a group
    if members is None or depth > 10:
        return []
    return [line for member in members for line in _shape(member, depth=depth + 1)]


def _sheets(file: Any, _: str) -> Iterator[str]:
    _check_zip(file)
    book = import_module("openpyxl").load_workbook(file, read_only=True, data_only=True)
    for sheet in book.worksheets:
        rows: list[list[str]] = []
        is_cut = False
        for number, row in enumerate(sheet.iter_rows(max_col=MAX_COLUMNS, values_only=True)):
            if number >= MAX_SCANNED_ROWS or len(rows) >= MAX_ROWS:
                is_cut = True
                break
            cells = ["" if value is None else str(value) for value in row]
            if any(cells):
                rows.append(cells)
        width = max((index + 1 for row in rows for index, cell in enumerate(row) if cell), default=0)
        lines = [f"## {_line(sheet.title)}", "", *_table([row[:width] for row in rows])]
        if is_cut:
            lines += ["", f"[Only the first {len(rows)} rows are shown.]"]
        yield "\n".join(lines)


def _table(rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    width = max(len(row) for row in rows)
    written = [
        "| " + " | ".join(_cell(row[index]) if index < len(row) else "" for index in range(width)) + " |"
        for row in rows
    ]
    return [written[0], "|" + " --- |" * width, *written[1:]]


def _cell(text: str) -> str:
    return _line(text)[:MAX_CELL_CHARS].replace("|", "\\|")


def _line(text: str) -> str:
    return " ".join(text.split())


def _old(_: Any, __: str) -> Iterator[str]:
    raise UnreadableError("it is in the format of Office before 2007; save it as .docx, .pptx or .xlsx")


def _check_zip(file: Any) -> None:
    """Reject a ZIP bomb: a package with more members or data than any real document."""
    try:
        members = zipfile.ZipFile(file).infolist()
    except zipfile.BadZipFile as error:
        raise UnreadableError("it is damaged, or not what its name says") from error
    if len(members) > MAX_MEMBERS or sum(member.file_size for member in members) > MAX_UNPACKED:
        raise UnreadableError("it would unpack to more than a document may")
    file.seek(0)


READERS: dict[str, Callable[[Any, str], Iterable[str]]] = {
    ".pdf": _pdf,
    ".docx": _word,
    ".pptx": _slides,
    ".xlsx": _sheets,
    ".doc": _old,
    ".ppt": _old,
    ".xls": _old,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
