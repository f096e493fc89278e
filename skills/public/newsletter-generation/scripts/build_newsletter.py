"""Builds a newsletter issue from JSON: HTML for mail programs, the plain text part, an .eml draft."""

import argparse
import html
import json
import textwrap
import unicodedata
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import Any

from _issue import paragraphs, plain, read_issue, rich, stop

FONT = "Arial,'Microsoft YaHei','PingFang SC',sans-serif"
INK, MUTED, LINE, GROUND = "#1f2933", "#5f6b7a", "#d9dee4", "#f2f4f7"
WIDTH = 600


class Writer:
    """Writes the parts of an issue as table rows with inline styles: mail programs know little more."""

    def __init__(self, issue: dict[str, Any]) -> None:
        self.issue = issue
        self.accent = str(issue.get("accent", "#2563a8"))
        self.rows: list[str] = []

    def row(self, content: str, padding: str = "0 32px 16px") -> None:
        """Add a row of the letter."""
        self.rows.append(f'<tr><td style="padding:{padding};font-family:{FONT}">{content}</td></tr>')

    def text(self, text: str, color: str = INK, size: int = 16) -> None:
        """Add paragraphs."""
        for part in paragraphs(text):
            self.row(
                f'<p style="margin:0;color:{color};font-size:{size}px;line-height:1.6">'
                f"{rich(part, self.accent)}</p>"
            )

    def heading(self, words: str) -> None:
        """Add the heading of a section."""
        style = f"margin:0;color:{self.accent};font-size:20px;line-height:1.3"
        self.row(f'<h2 style="{style}">{html.escape(words)}</h2>', "20px 32px 12px")

    def item(self, item: dict[str, Any]) -> None:
        """Add a piece of news: picture, title, text, source and link."""
        if item.get("image"):
            source, alt = html.escape(item["image"]), html.escape(item["alt"])
            style = "display:block;width:100%;max-width:536px;height:auto;border:0"
            self.row(f'<img src="{source}" alt="{alt}" width="536" style="{style}">', "4px 32px 12px")
        title = html.escape(item["title"])
        if item.get("url"):
            title = (
                f'<a href="{html.escape(item["url"])}" style="color:{INK};text-decoration:none">{title}</a>'
            )
        self.row(
            f'<h3 style="margin:0;color:{INK};font-size:17px;line-height:1.35">{title}</h3>', "0 32px 6px"
        )
        self.text(item["text"])
        about = " · ".join(str(item[key]) for key in ("source", "date") if item.get(key))
        link = ""
        if item.get("url"):
            words = html.escape(item.get("link_text") or f"{item['title']} →")
            style = f"color:{self.accent};font-weight:bold"
            link = f'<a href="{html.escape(item["url"])}" style="{style}">{words}</a>'
        if about or link:
            between = "&nbsp;&nbsp;" if about and link else ""
            self.row(
                f'<p style="margin:0;font-size:14px;color:{MUTED}">{html.escape(about)}{between}{link}</p>',
                "0 32px 24px",
            )

    def button(self, words: str, url: str) -> None:
        """Add the main action as a button that also old programs show."""
        style = (
            f"display:inline-block;padding:13px 26px;color:#ffffff;font-family:{FONT};font-size:16px;"
            "font-weight:bold;text-decoration:none"
        )
        inner = f'<a href="{html.escape(url)}" style="{style}">{html.escape(words)}</a>'
        table = (
            '<table role="presentation" cellpadding="0" cellspacing="0" border="0"><tr>'
            f'<td bgcolor="{self.accent}" style="border-radius:6px">{inner}</td></tr></table>'
        )
        self.row(table, "8px 32px 28px")

    def document(self) -> str:
        """Return the whole letter."""
        issue, footer = self.issue, self.issue["footer"]
        about = " · ".join(str(issue[key]) for key in ("issue", "date") if issue.get(key))
        self.row(
            f'<p style="margin:0;font-size:14px;color:{MUTED}">{html.escape(about)}</p>', "28px 32px 8px"
        )
        self.row(
            f'<h1 style="margin:0;color:{INK};font-size:28px;line-height:1.25">'
            f"{html.escape(issue['title'])}</h1>"
        )
        self.text(issue.get("intro", ""))
        for section in issue["sections"]:
            self.heading(section["heading"])
            self.text(section.get("text", ""))
            for item in section.get("items", []):
                self.item(item)
        if issue.get("action"):
            self.button(issue["action"]["text"], issue["action"]["url"])
        small = [html.escape(str(footer[key])) for key in ("why", "sender", "address") if footer.get(key)]
        words = html.escape(footer.get("unsubscribe_text", "Unsubscribe"))
        small.append(f'<a href="{html.escape(footer["unsubscribe"])}" style="color:{MUTED}">{words}</a>')
        self.row(
            f'<p style="margin:0;font-size:13px;line-height:1.6;color:{MUTED}">{"<br>".join(small)}</p>',
            "20px 32px 28px",
        )
        return _frame(issue, "\n".join(self.rows))


def _frame(issue: dict[str, Any], rows: str) -> str:
    hidden = "display:none;max-height:0;overflow:hidden"
    table = 'role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0"'
    return (
        f'<!doctype html>\n<html lang="{html.escape(issue.get("language", "en"))}"><head>'
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(issue['subject'])}</title></head>\n"
        f'<body style="margin:0;padding:0;background:{GROUND}">\n'
        f'<div style="{hidden}">{html.escape(issue["preheader"])}{"&#8199;&#847; " * 20}</div>\n'
        f'<table {table} bgcolor="{GROUND}"><tr><td align="center" style="padding:20px 8px">\n'
        f'<table {table} bgcolor="#ffffff" style="max-width:{WIDTH}px;border:1px solid {LINE}">\n'
        f"{rows}\n</table>\n"
        "</td></tr></table>\n</body></html>\n"
    )


def text_part(issue: dict[str, Any]) -> str:
    """Return the letter as plain text."""
    lines = [issue["title"], "=" * min(_columns(issue["title"]), 70), ""]
    lines += _wrapped(issue.get("intro", ""))
    for section in issue["sections"]:
        lines += [
            "",
            section["heading"].upper(),
            "-" * min(_columns(section["heading"]), 70),
            "",
            *_wrapped(section.get("text", "")),
        ]
        for item in section.get("items", []):
            about = " · ".join(str(item[key]) for key in ("source", "date") if item.get(key))
            lines += [f"* {item['title']}", *(f"  {line}" for line in _wrapped(item["text"]) if line)]
            lines += [f"  ({about})"] if about else []
            lines += [f"  {item['url']}"] if item.get("url") else []
            lines.append("")
    if issue.get("action"):
        lines += [f"{issue['action']['text']}: {issue['action']['url']}", ""]
    footer = issue["footer"]
    lines += ["-- ", *(str(footer[key]) for key in ("why", "sender", "address") if footer.get(key))]
    lines.append(f"{footer.get('unsubscribe_text', 'Unsubscribe')}: {footer['unsubscribe']}")
    return "\n".join(lines) + "\n"


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _wrapped(text: str) -> list[str]:
    lines: list[str] = []
    for part in paragraphs(plain(text)):
        width = 72 if part.isascii() else 40
        lines += [
            *textwrap.wrap(part, width, break_long_words=not part.isascii(), break_on_hyphens=False),
            "",
        ]
    return lines


def main() -> None:
    """Write .html, .txt and .eml and print where they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("issue", type=Path, help="JSON file; its keys are in references/issue-spec.md")
    parser.add_argument(
        "--out", type=Path, required=True, help="path without suffix, e.g. /mnt/user-data/outputs/may"
    )
    options = parser.parse_args()
    issue = read_issue(options.issue)
    if options.out.suffix in {".html", ".txt", ".eml"}:
        stop(f"--out is a path without suffix, not {options.out.name!r}")
    letter, words = Writer(issue).document(), text_part(issue)
    mail = EmailMessage(policy=SMTP)
    mail["Subject"] = " ".join(str(issue["subject"]).split())
    mail["X-Unsent"] = "1"  # mail programs open it as a draft
    mail.set_content(words)
    mail.add_alternative(letter, subtype="html")
    mail.get_payload()[1].replace_header("Content-Type", 'text/html; charset="utf-8"')
    mail.set_boundary("newsletter-part")  # a fixed one: the same issue gives the same file
    options.out.parent.mkdir(parents=True, exist_ok=True)
    files = [options.out.with_name(options.out.name + suffix) for suffix in (".html", ".txt", ".eml")]
    files[0].write_text(letter, encoding="utf-8")
    files[1].write_text(words, encoding="utf-8")
    files[2].write_bytes(mail.as_bytes())
    report = {
        "files": [str(file) for file in files],
        "html_bytes": len(letter.encode()),
        "words": len(words.split()),
    }
    print(json.dumps(report, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
