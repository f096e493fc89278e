"""Writes a report as a Word document with real styles, tables, pictures and links."""

from pathlib import Path
from typing import Any

from _common import stop_missing
from _report import Node, Report, picture, plain

try:
    from docx import Document
    from docx.enum.text import WD_ALIGN_PARAGRAPH
    from docx.image.exceptions import UnrecognizedImageError
    from docx.opc.constants import RELATIONSHIP_TYPE
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn
    from docx.shared import Inches, Pt, RGBColor
except ImportError:
    stop_missing("python-docx")

BLUE, GREY = RGBColor(0x1F, 0x3A, 0x5F), RGBColor(0x5F, 0x6B, 0x7A)
PICTURE_WIDTH = 6.0


def write_docx(report: Report, path: Path) -> None:
    """Write the report to `path`."""
    document = Document()
    _styles(document)
    document.core_properties.title = report.title
    document.core_properties.author = report.meta.get("author", "")
    document.add_paragraph(report.title, style="Title")
    for words in (
        report.meta.get("subtitle"),
        " · ".join(report.meta[key] for key in ("author", "date") if report.meta.get(key)),
    ):
        if words:
            run = document.add_paragraph().add_run(words)
            run.font.color.rgb = GREY
    children = list(report.tree.children)
    if children and children[0].type == "heading" and plain(children[0]) == report.title:
        children = children[1:]
    for child in children:
        _block(report, document, child, 0)
    document.save(str(path))


def _styles(document: Any) -> None:
    normal = document.styles["Normal"]
    normal.font.name, normal.font.size = "Calibri", Pt(11)
    for name in ("Normal", "Title", "Heading 1", "Heading 2", "Heading 3", "Heading 4"):
        style = document.styles[name]
        fonts = style.element.get_or_add_rPr().get_or_add_rFonts()
        fonts.set(qn("w:eastAsia"), "Microsoft YaHei")
        if name != "Normal":
            style.font.color.rgb = BLUE
    normal.paragraph_format.space_after = Pt(7)


def _block(report: Report, document: Any, node: Node, depth: int) -> None:
    match node.type:
        case "heading":
            paragraph = document.add_paragraph(style=f"Heading {min(int(node.tag[1]), 4)}")
            _inline(report, paragraph, node)
        case "paragraph":
            _inline(report, document.add_paragraph(), node)
        case "bullet_list" | "ordered_list":
            _list(report, document, node, depth)
        case "blockquote":
            for child in node.children:
                paragraph = document.add_paragraph(style="Quote")
                _inline(report, paragraph, child)
        case "fence" | "code_block":
            paragraph = document.add_paragraph()
            paragraph.paragraph_format.left_indent = Inches(0.25)
            run = paragraph.add_run(node.content.rstrip())
            run.font.name, run.font.size = "Consolas", Pt(9.5)
        case "table":
            _table(report, document, node)
        case "hr":
            document.add_paragraph("―" * 12).alignment = WD_ALIGN_PARAGRAPH.CENTER


def _list(report: Report, document: Any, node: Node, depth: int) -> None:
    number = int(node.attrs.get("start", 1))
    for item in node.children:
        mark = f"{number}." if node.type == "ordered_list" else "•"
        number += 1
        first = True
        for child in item.children:
            if child.type != "paragraph":
                _block(report, document, child, depth + 1)
                continue
            paragraph = document.add_paragraph()
            paragraph.paragraph_format.left_indent = Inches(0.3 * (depth + 1))
            paragraph.paragraph_format.space_after = Pt(3)
            if first:
                # Marks as text: Word's own numbering would go on from one list to the next.
                paragraph.paragraph_format.first_line_indent = Inches(-0.25)
                paragraph.paragraph_format.tab_stops.add_tab_stop(Inches(0.3 * (depth + 1)))
                paragraph.add_run(f"{mark}\t")
            _inline(report, paragraph, child)
            first = False


def _table(report: Report, document: Any, node: Node) -> None:
    rows = [row for part in node.children for row in part.children]
    table = document.add_table(len(rows), len(rows[0].children), style="Light Grid Accent 1")
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells.children):
            paragraph = table.cell(row, column).paragraphs[0]
            _inline(report, paragraph, cell)
            if "right" in str(cell.attrs.get("style", "")):
                paragraph.alignment = WD_ALIGN_PARAGRAPH.RIGHT
    properties = table.rows[0]._tr.get_or_add_trPr()
    properties.append(OxmlElement("w:tblHeader"))
    document.add_paragraph()


def _inline(report: Report, paragraph: Any, node: Node, **style: bool) -> None:
    for child in node.children:
        match child.type:
            case "text" | "code_inline":
                _run(paragraph, child.content, code=child.type == "code_inline", **style)
            case "softbreak":
                paragraph.add_run(" ")
            case "hardbreak":
                paragraph.add_run().add_break()
            case "strong" | "em" | "s":
                _inline(report, paragraph, child, **style, **{child.type: True})
            case "link":
                _link(paragraph, str(child.attrs["href"]), plain(child))
            case "image":
                _image(report, paragraph, child)
            case _:
                _inline(report, paragraph, child, **style)


def _run(
    paragraph: Any, text: str, *, code: bool = False, strong: bool = False, em: bool = False, s: bool = False
) -> None:
    run = paragraph.add_run(text)
    run.bold, run.italic, run.font.strike = strong or None, em or None, s or None
    if code:
        run.font.name = "Consolas"


def _link(paragraph: Any, target: str, words: str) -> None:
    run = paragraph.add_run(words)
    run.font.color.rgb, run.font.underline = RGBColor(0x25, 0x63, 0xA8), True
    if target.startswith("#"):
        return
    link = OxmlElement("w:hyperlink")
    link.set(qn("r:id"), paragraph.part.relate_to(target, RELATIONSHIP_TYPE.HYPERLINK, is_external=True))
    paragraph._p.append(link)
    link.append(run._r)


def _image(report: Report, paragraph: Any, node: Node) -> None:
    file = picture(report, node)
    try:
        if file is None:
            raise OSError
        shown = paragraph.add_run().add_picture(str(file), width=Inches(PICTURE_WIDTH))
    except (OSError, UnrecognizedImageError):
        paragraph.add_run(f"[{plain(node) or node.attrs.get('src')}]")
        return
    shown._inline.docPr.set("descr", str(node.content))
    paragraph.alignment = WD_ALIGN_PARAGRAPH.CENTER
    if node.content:
        caption = paragraph.add_run()
        caption.add_break()
        caption.add_text(str(node.content))
        caption.italic, caption.font.size = True, Pt(9.5)
