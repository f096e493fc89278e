"""Writes a report as Typst markup, from which PDF and pictures of the pages are made."""

import json
import os
from collections.abc import Callable

from _report import Node, Report, picture, plain

PAGE = """#set document(title: {title}, date: none)
#set page(paper: "a4", margin: (x: 2.4cm, top: 2.4cm, bottom: 2.6cm), numbering: "1 / 1")
#set text(font: ("Libertinus Serif", "Noto Serif CJK SC", "Noto Sans CJK SC"), size: 10.5pt, lang: "{lang}")
#set par(justify: true, leading: 0.72em)
#show heading: set block(above: 1.5em, below: 0.8em)
#show heading: set text(fill: rgb("#1f3a5f"))
#show link: set text(fill: rgb("#2563a8"))
#show raw.where(block: true): block.with(fill: rgb("#f4f6f8"), inset: 8pt, width: 100%, radius: 3pt)
#show table.cell.where(y: 0): set text(weight: "bold")
#show table: set par(justify: false)
#set table(inset: 6pt, stroke: (x, y) => (
  bottom: if y == 0 {{ 0.9pt + rgb("#1f3a5f") }} else {{ 0.4pt + rgb("#c9cdd3") }},
))
"""


def typst_source(report: Report) -> str:
    """Return the whole document."""
    meta = report.meta
    head = PAGE.format(title=_string(report.title), lang="zh" if report.chinese else "en")
    lines = [head, f'#text(size: 24pt, weight: "bold", fill: rgb("#1f3a5f"))[{_text(report.title)}]\n\n']
    if meta.get("subtitle"):
        lines.append(f'#text(size: 13pt, fill: rgb("#5f6b7a"))[{_text(meta["subtitle"])}]\n\n')
    byline = " · ".join(meta[key] for key in ("author", "date") if meta.get(key))
    if byline:
        lines.append(f'#text(fill: rgb("#5f6b7a"))[{_text(byline)}]\n\n')
    if meta.get("toc", "").lower() in {"yes", "true"}:
        lines.append(f"#outline(title: [{_text('目录' if report.chinese else 'Contents')}], depth: 2)\n\n")
    children = list(report.tree.children)
    if children and children[0].type == "heading" and plain(children[0]) == report.title:
        children = children[1:]
    lines += [_block(report, child) for child in children]
    return "".join(lines)


def _string(text: str) -> str:
    # JSON writes other characters as they are and escapes quotes and backslashes as Typst does.
    return json.dumps(text, ensure_ascii=False).replace("\\/", "/")


def _text(text: str) -> str:
    return f"#{_string(text)};"


def _inline(report: Report, node: Node) -> str:
    inner = "".join(_inline(report, child) for child in node.children)
    match node.type:
        case "text":
            return _text(node.content)
        case "code_inline":
            return f"#raw({_string(node.content)});"
        case "softbreak":
            return " "
        case "hardbreak":
            return "#linebreak();"
        case "strong" | "s" | "em":
            name = {"strong": "strong", "s": "strike", "em": "emph"}[node.type]
            return f"#{name}[{inner}];"
        case "link":
            return f"#link({_string(str(node.attrs['href']))})[{inner}];"
        case "image":
            return _image(report, node)
        case _:
            return inner


def _image(report: Report, node: Node) -> str:
    file = picture(report, node)
    if file is None:
        return _text(f"[{plain(node) or node.attrs.get('src')}]")
    path = os.path.relpath(file, report.folder)
    caption = f", caption: [{_text(str(node.content))}]" if node.content else ""
    return f"#figure(image({_string(path)}, width: 92%){caption});"


def _block(report: Report, node: Node) -> str:
    def inner() -> str:
        return "".join(_block(report, child) for child in node.children)

    kinds: dict[str, Callable[[], str]] = {
        "heading": lambda: f"#heading(level: {node.tag[1]})[{_children(report, node)}]\n\n",
        "paragraph": lambda: f"{_children(report, node)}\n\n",
        "inline": lambda: _children(report, node),
        "bullet_list": lambda: f"#list({_items(report, node)})\n\n",
        "ordered_list": lambda: f"#enum(start: {node.attrs.get('start', 1)}, {_items(report, node)})\n\n",
        "blockquote": lambda: f"#quote(block: true)[{inner()}]\n\n",
        "fence": lambda: f"#raw({_string(node.content.rstrip())}, block: true)\n\n",
        "code_block": lambda: f"#raw({_string(node.content.rstrip())}, block: true)\n\n",
        "hr": lambda: '#line(length: 100%, stroke: 0.5pt + rgb("#c9cdd3"))\n\n',
        "table": lambda: _table(report, node),
    }
    return kinds.get(node.type, inner)()


def _children(report: Report, node: Node) -> str:
    return "".join(_inline(report, child) for child in node.children)


def _items(report: Report, node: Node) -> str:
    return ", ".join(
        f"[{''.join(_block(report, child) for child in item.children)}]" for item in node.children
    )


def _table(report: Report, node: Node) -> str:
    rows = [row for part in node.children for row in part.children]
    aligns = [
        str(cell.attrs.get("style", "")).removeprefix("text-align:") or "left" for cell in rows[0].children
    ]
    cells = [[f"[{_children(report, cell)}]" for cell in row.children] for row in rows]
    body = ", ".join(cell for row in cells[1:] for cell in row)
    head = f"table.header({', '.join(cells[0])})"
    settings = f"columns: {len(aligns)}, align: ({', '.join(aligns)},)"
    return f"#block(width: 100%)[#table({settings}, {head}{', ' + body if body else ''})]\n\n"
