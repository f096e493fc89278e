"""Small real documents, and hostile ones, made on the spot."""

import io
import zipfile

import openpyxl
import pptx
from pptx.util import Inches

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_TYPES = """<?xml version="1.0"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/word/document.xml"
 ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>
</Types>"""
_RELATIONS = """<?xml version="1.0"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="r1" Target="word/document.xml"
 Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"/>
</Relationships>"""


def pdf(*pages: str) -> bytes:
    """Return a PDF with the given lines of text on each page."""
    kids = " ".join(f"{3 + 2 * number} 0 R" for number in range(len(pages)))
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>"]
    font = "<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
    for number, text in enumerate(pages):
        lines = " 0 -16 Td ".join(f"({line}) Tj" for line in text.strip().split("\n"))
        content = f"BT /F1 12 Tf 72 720 Td {lines} ET"
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources {font}"
        objects += [f"{page} /Contents {4 + 2 * number} 0 R >>"]
        objects += [f"<< /Length {len(content)} >>\nstream\n{content}\nendstream"]
    return _assembled(objects)


def endless_pdf() -> bytes:
    """Return a PDF whose pages contain each other."""
    return _assembled(
        ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 1000000 >>"]
    )


def word(*paragraphs: str, prologue: str = "") -> bytes:
    """Return a Word file with a heading and these paragraphs."""
    heading = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Top</w:t></w:r></w:p>'
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    document = f'<w:document xmlns:w="{_WORD}"><w:body>{heading}{body}</w:body></w:document>'
    return _zipped({"word/document.xml": f'<?xml version="1.0"?>{prologue}{document}'})


def laughing_word() -> bytes:
    """Return a Word file whose one word stands for a thousand million others."""
    laughs = "".join(f'<!ENTITY l{number} "{f"&l{number - 1};" * 10}">' for number in range(1, 10))
    return word("&l9;", prologue=f'<!DOCTYPE d [<!ENTITY l0 "lol">{laughs}]>')


def bomb() -> bytes:
    """Return a small Word file that unpacks to half a gigabyte."""
    return _zipped({"word/document.xml": word("x").decode("latin-1")}, padding=500 * 1024 * 1024)


def sheet(rows: list[list[object]], *, title: str = "Numbers") -> bytes:
    """Return an Excel file with one sheet."""
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active.title = title
    for row in rows:
        book.active.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def slides(title: str, *bullets: str) -> bytes:
    """Return a PowerPoint file with a title, bullets, a table and notes."""
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    assert slide.shapes.title is not None
    slide.shapes.title.text = title
    slide.placeholders[1].text_frame.text = "\n".join(bullets)
    table = slide.shapes.add_table(1, 2, Inches(1), Inches(4), Inches(4), Inches(1)).table
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    assert slide.notes_slide.notes_text_frame is not None
    slide.notes_slide.notes_text_frame.text = "Say it slowly."
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


def _zipped(files: dict[str, str], *, padding: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {"[Content_Types].xml": _TYPES, "_rels/.rels": _RELATIONS, **files}.items():
            archive.writestr(name, text)
        if padding:
            with archive.open("word/padding.xml", "w") as entry:
                for _ in range(padding >> 20):
                    entry.write(b" " * (1 << 20))
    return out.getvalue()


def _assembled(objects: list[str]) -> bytes:
    out = b"%PDF-1.4\n"
    places = []
    for number, text in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n".encode("latin-1")
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    return out + f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()
