"""Checks a newsletter (issue .json or finished .html): subject, length, links, pictures, mail limits."""

import argparse
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from _issue import read_issue, stop

CLIPPED = 102_000
"""Bytes above which a large provider cuts a letter off."""
SUBJECT, PREHEADER = 60, (35, 110)
PLACEHOLDER = re.compile(r"(?i)lorem ipsum|\bTODO\b|\bTBD\b|\[insert|example\.(?:com|org)|待补充")
SHOUTING = re.compile(
    r"!{2,}|(?i:\bfree!|act now|guaranteed|100 ?% free|click here|免费领取|点击这里|最后机会)|\b[A-Z]{6,}\b"
)
Finding = tuple[str, str]


class Letter(HTMLParser):
    """Collects what matters in the HTML of a letter."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.images: list[dict[str, str]] = []
        self.styles: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.tags[tag] += 1
        self.styles.append(given.get("style", ""))
        if tag == "a":
            self.links.append(given.get("href", ""))
        if tag == "img":
            self.images.append(given)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def main() -> None:
    """Print the findings as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("newsletter", type=Path, help="issue.json or letter.html")
    options = parser.parse_args()
    path = options.newsletter
    if not path.is_file():
        stop(f"{path} is not a file")
    if path.suffix.lower() == ".json":
        findings = check_issue(read_issue(path))
    elif path.suffix.lower() in {".html", ".htm"}:
        findings = check_letter(path.read_text(encoding="utf-8", errors="replace"))
    else:
        stop(f"{path.name} is neither .json nor .html")
    errors = sum(level == "error" for level, _ in findings)
    shown = [{"level": level, "problem": words} for level, words in sorted(findings)]
    print(
        json.dumps(
            {"errors": errors, "warnings": len(shown) - errors, "findings": shown},
            ensure_ascii=False,
            indent=1,
        )
    )


def check_issue(issue: dict[str, Any]) -> list[Finding]:
    """Return what is wrong with the description of an issue."""
    subject, preheader = str(issue["subject"]), str(issue["preheader"])
    found: list[Finding] = []
    if len(subject) > SUBJECT:
        found.append(("warning", f"the subject has {len(subject)} characters; phones show about {SUBJECT}"))
    if not PREHEADER[0] <= len(preheader) <= PREHEADER[1] and preheader.isascii():
        found.append(
            (
                "warning",
                f"the preheader has {len(preheader)} characters; {PREHEADER[0]} to {PREHEADER[1]} are shown",
            )
        )
    if preheader.strip().lower() == subject.strip().lower():
        found.append(("error", "the preheader repeats the subject"))
    found += [
        ("warning", f"the subject sounds like spam: {match[0]!r}") for match in SHOUTING.finditer(subject)
    ]
    items = [item for section in issue["sections"] for item in section.get("items", [])]
    found += [("warning", f"{item['title'][:50]!r} has no link") for item in items if not item.get("url")]
    found += [
        ("warning", f"{item['title'][:50]!r} has no source")
        for item in items
        if item.get("url") and not item.get("source")
    ]
    urls = Counter(item["url"] for item in items if item.get("url"))
    found += [("warning", f"{url} appears {times} times") for url, times in urls.items() if times > 1]
    for item in items:
        count = len(re.findall(r"[\u3400-\u9fff]|[A-Za-z0-9']+", item["text"]))
        if count > (220 if re.search(r"[\u3400-\u9fff]", item["text"]) else 120):
            found.append(
                ("warning", f"{item['title'][:50]!r} has {count} words; say it in 30 to 80 and link")
            )
    if len(items) > 12:
        found.append(("warning", f"{len(items)} items; readers take in five to eight"))
    if not issue.get("action"):
        found.append(("warning", "there is no main action"))
    text = json.dumps(issue, ensure_ascii=False)
    return found + [("error", f"placeholder {match[0]!r}") for match in PLACEHOLDER.finditer(text)]


def check_letter(text: str) -> list[Finding]:
    """Return what is wrong with the finished HTML."""
    letter = Letter()
    letter.feed(text)
    found: list[Finding] = []
    size = len(text.encode())
    if size > CLIPPED:
        found.append(("error", f"{size} bytes: some providers cut letters above {CLIPPED}"))
    for tag in ("script", "form", "iframe", "video", "link", "svg"):
        if letter.tags[tag]:
            found.append(("error", f"<{tag}> does not work in mail"))
    styles = " ".join(letter.styles)
    for words in ("display:flex", "display:grid", "position:absolute", "background-image"):
        if words in styles.replace(" ", ""):
            found.append(("error", f"{words} is not shown by all mail programs; use tables"))
    found += _addresses(letter)
    if not re.search(r"(?i)unsubscribe|退订|opt out|abmelden", " ".join(letter.words)):
        found.append(("error", "there is no way to unsubscribe"))
    words = len(" ".join(letter.words).split())
    if letter.images and words < 60:
        found.append(
            ("warning", f"{len(letter.images)} pictures and {words} words: without pictures nothing is left")
        )
    return found + [("error", f"placeholder {match[0]!r}") for match in PLACEHOLDER.finditer(text)]


def _addresses(letter: Letter) -> list[Finding]:
    found: list[Finding] = []
    for link in letter.links:
        if not re.match(r"https://|mailto:|\{\{", link):
            found.append(("error", f"link {link!r} is no full https:// address"))
    for image in letter.images:
        if "alt" not in image:
            found.append(("error", f"picture {image.get('src', '')[:60]!r} has no alt"))
        if not re.match(r"https://|cid:", image.get("src", "")):
            found.append(("error", f"picture {image.get('src', '')[:60]!r} is not at an https:// address"))
    return found


if __name__ == "__main__":
    main()
