"""Turns a report in Markdown into PDF, Word (.docx), a single HTML file, and pictures of the PDF's pages."""

import argparse
import base64
import html
import json
import mimetypes
import re
from pathlib import Path

from _common import stop, stop_missing
from _docx import write_docx
from _report import Report, parser, picture, plain, read_report
from _typst import typst_source

try:
    import typst
except ImportError:
    stop_missing("typst")

FORMATS = ("pdf", "docx", "html", "png")
STYLE = """
body { max-width: 46rem; margin: 2.5rem auto; padding: 0 1.2rem; color: #1f2933; background: #fff;
  font: 1.05rem/1.65 Georgia, "Noto Serif CJK SC", "Songti SC", serif }
h1, h2, h3, h4 { font-family: system-ui, "Microsoft YaHei", sans-serif; color: #1f3a5f; line-height: 1.25;
  margin: 2em 0 .6em }
h1 { font-size: 2.1rem; margin-top: 0 }
.by { color: #5f6b7a }
nav { border-left: 3px solid #d9dee4; padding-left: 1rem; margin: 1.5rem 0 }
table { border-collapse: collapse; width: 100%; font: .95rem system-ui, sans-serif; margin: 1.2em 0 }
th { border-bottom: 2px solid #1f3a5f; text-align: left }
td { border-bottom: 1px solid #d9dee4 }
th, td { padding: .4em .6em }
img { max-width: 100%; height: auto }
code { font-size: .9em; background: #f4f6f8; padding: .1em .3em }
pre { background: #f4f6f8; padding: 1em; overflow: auto }
pre code { padding: 0 }
blockquote { border-left: 3px solid #c9cdd3; margin-left: 0; padding-left: 1rem; color: #5f6b7a }
a { color: #2563a8 }
@media print { body { max-width: none; margin: 0 } a { color: inherit } }
"""


def main() -> None:
    """Write the chosen formats and print what was made."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "report", type=Path, help="Markdown file with a front matter (title, subtitle, author, date, toc)"
    )
    arguments.add_argument(
        "--out", type=Path, required=True, help="path without suffix, e.g. /mnt/user-data/outputs/report"
    )
    arguments.add_argument(
        "--formats", default="pdf,docx,html", help="of pdf, docx, html, png (pages as pictures)"
    )
    options = arguments.parse_args()
    formats = options.formats.split(",")
    if unknown := set(formats) - set(FORMATS):
        stop(f"--formats knows {', '.join(FORMATS)}, not {', '.join(sorted(unknown))}")

    report = read_report(options.report)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    files = []
    for kind in formats:
        target = options.out.with_name(f"{options.out.name}.{kind}")
        if kind == "docx":
            write_docx(report, target)
        elif kind == "html":
            target.write_text(_html(report), encoding="utf-8")
        else:
            target = _typeset(report, target)
        files.append(str(target))
    missing = [
        str(node.attrs.get("src"))
        for node in report.tree.walk()
        if node.type == "image" and picture(report, node) is None
    ]
    warnings = [f"picture {name!r} was not found; its description stands in its place" for name in missing]
    print(json.dumps({"files": files, "warnings": warnings}, ensure_ascii=False, indent=1))


def _typeset(report: Report, target: Path) -> Path:
    source, root = typst_source(report).encode(), str(report.folder)  # pictures are read below the root only
    try:
        if target.suffix == ".pdf":
            typst.compile(source, output=str(target), root=root)
            return target
        pages = target.with_name(f"{target.stem}-{{0p}}.png")
        typst.compile(source, output=str(pages), root=root, format="png", ppi=90.0)
        return pages.with_name(pages.name.replace("{0p}", "*"))
    except (RuntimeError, typst.TypstError) as error:
        stop(f"the report could not be set as {target.suffix[1:]}: {error}")


def _html(report: Report) -> str:
    """Return one file with everything in it: pictures become part of it, headings get anchors."""
    body = parser().render(report.text)
    anchors: list[tuple[int, str, str]] = []

    def heading(match: re.Match[str]) -> str:
        level, words = int(match[1]), match[2]
        anchor = f"s{len(anchors) + 1}"
        anchors.append((level, anchor, re.sub(r"<[^>]+>", "", words)))
        return f'<h{level} id="{anchor}">{words}</h{level}>'

    body = re.sub(r"<h([1-6])>(.*?)</h\1>", heading, body, flags=re.DOTALL)
    for node in report.tree.walk():
        file = picture(report, node) if node.type == "image" else None
        if file is not None:
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            data = base64.b64encode(file.read_bytes()).decode()
            body = body.replace(
                f'src="{html.escape(str(node.attrs["src"]))}"', f'src="data:{kind};base64,{data}"'
            )
    first = next(iter(report.tree.children), None)
    head = (
        ""
        if first is not None and first.type == "heading" and plain(first) == report.title
        else f"<h1>{html.escape(report.title)}</h1>"
    )
    by = [report.meta[key] for key in ("subtitle", "author", "date") if report.meta.get(key)]
    head += f'<p class="by">{html.escape(" · ".join(by))}</p>' if by else ""
    if report.meta.get("toc", "").lower() in {"yes", "true"}:
        links = "".join(
            f'<div><a href="#{anchor}">{words}</a></div>' for level, anchor, words in anchors if level <= 2
        )
        head += f"<nav>{links}</nav>"
    language = "zh" if report.chinese else "en"
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(report.title)}</title>"
        f"<style>{STYLE}</style></head>\n<body>\n{head}\n{body}</body></html>\n"
    )


if __name__ == "__main__":
    main()
