"""Checks an HTML page: accessibility, contrast of CSS variables, phones, offline use, broken references."""

import argparse
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from _color import contrast, parse_hex, stop

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
OPTIONAL_END = {
    "p",
    "li",
    "td",
    "th",
    "tr",
    "thead",
    "tbody",
    "tfoot",
    "option",
    "dt",
    "dd",
    "html",
    "head",
    "body",
    "colgroup",
}
VARIABLE_PAIRS = (
    ("text", "background"),
    ("text", "surface"),
    ("muted", "background"),
    ("on-accent", "accent"),
)
VAGUE = {"click here", "here", "more", "read more", "link", "点击这里", "这里", "更多"}
Finding = tuple[str, int, str, str]


class Page(HTMLParser):
    """Collects elements, texts, ids and what is wrong with them while it reads."""

    def __init__(self, file: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.file = file
        self.found: list[Finding] = []
        self.open: list[tuple[str, int, dict[str, str], list[str]]] = []
        self.ids: Counter[str] = Counter()
        self.targets: list[tuple[int, str]] = []
        self.labels: set[str] = set()
        self.fields: list[tuple[int, str, dict[str, str], bool]] = []
        self.headings: list[tuple[int, int]] = []
        self.tags: Counter[str] = Counter()
        self.meta: dict[str, str] = {}
        self.css: list[str] = []
        self.script: list[str] = []

    def add(self, level: str, rule: str, words: str, line: int | None = None) -> None:
        """Note a finding at a line."""
        self.found.append((level, line or self.getpos()[0], rule, words))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.tags[tag] += 1
        if "id" in given:
            self.ids[given["id"]] += 1
        self._references(tag, given)
        self._element(tag, given)
        if tag not in VOID:
            self.open.append((tag, self.getpos()[0], given, []))

    def _references(self, tag: str, given: dict[str, str]) -> None:
        for name in ("src", "href", "poster"):
            value = given.get(name, "")
            if value.startswith("#") and len(value) > 1:
                self.targets.append((self.getpos()[0], value[1:]))
            elif (
                re.match(r"(?:https?:)?//", value)
                and tag != "a"
                and given.get("rel") not in {"canonical", "alternate"}
            ):
                self.add("warning", "offline", f"<{tag}> loads {value[:60]} from the network")
            elif (
                name in given
                and value
                and not re.match(r"[a-z][a-z0-9+.-]*:|#|\?", value)
                and not value.startswith("/")
            ):
                path = re.split(r"[?#]", value)[0]
                if path and not (self.file.parent / path).exists():
                    self.add("error", "reference", f"{value!r} does not exist")

    def _element(self, tag: str, given: dict[str, str]) -> None:
        if tag == "html" and not given.get("lang"):
            self.add("error", "language", "<html> has no lang")
        if tag == "meta":
            self.meta[given.get("name", given.get("charset", ""))] = given.get("content", "")
        if tag == "img":
            if self.open and given.get("alt"):
                self.open[-1][3].append(given["alt"])  # it names the link or button around it
            if "alt" not in given:
                self.add(
                    "error",
                    "alt",
                    f'picture {given.get("src", "")[:50]!r} has no alt; decorative ones get alt=""',
                )
            if not (given.get("width") and given.get("height")):
                self.add(
                    "warning",
                    "layout",
                    f"picture {given.get('src', '')[:50]!r} has no width and height: the page jumps",
                )
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append((int(tag[1]), self.getpos()[0]))
        if tag == "label" and given.get("for"):
            self.labels.add(given["for"])
        if tag in {"input", "select", "textarea"} and given.get("type") not in {
            "hidden",
            "submit",
            "button",
            "reset",
            "image",
        }:
            inside = any(name == "label" for name, *_ in self.open)
            self.fields.append((self.getpos()[0], tag, given, inside))
        if (
            "onclick" in given
            and tag not in {"button", "a", "input", "summary"}
            and given.get("role") != "button"
        ):
            self.add(
                "error", "keyboard", f"<{tag} onclick> cannot be reached with the keyboard; use a button"
            )
        if re.fullmatch(r"[1-9]\d*", given.get("tabindex", "")):
            self.add("warning", "keyboard", "a positive tabindex changes the order of the page")

    def handle_endtag(self, tag: str) -> None:
        while self.open:
            name, line, given, texts = self.open.pop()
            self._closed(name, line, given, " ".join("".join(texts).split()))
            if self.open and name not in {"script", "style"}:
                self.open[-1][3].extend(texts)
            if name == tag:
                return
            if name not in OPTIONAL_END:
                self.add("error", "nesting", f"<{name}> of line {line} is not closed before </{tag}>")
        if tag not in VOID:
            self.add("error", "nesting", f"</{tag}> closes nothing")

    def _closed(self, tag: str, line: int, given: dict[str, str], text: str) -> None:
        named = text or given.get("aria-label") or given.get("aria-labelledby") or given.get("title")
        if tag in {"a", "button"} and not named:
            self.add("error", "name", f"<{tag}> has no text and no aria-label", line)
        if tag == "a" and text.lower() in VAGUE:
            self.add("warning", "name", f"the link text {text!r} says nothing out of context", line)
        if tag == "title":
            self.meta["title"] = text

    def handle_data(self, data: str) -> None:
        if not self.open:
            return
        tag = self.open[-1][0]
        if tag == "style":
            self.css.append(data)
        elif tag == "script":
            self.script.append(data)
        else:
            self.open[-1][3].append(data)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID and self.open:
            name, line, given, _ = self.open.pop()
            self._closed(name, line, given, "")


def main() -> None:
    """Print the findings as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the HTML file")
    options = parser.parse_args()
    try:
        text = options.page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        stop(f"{options.page} cannot be read: {error}")
    if "<" not in text:
        stop(f"{options.page} holds no HTML")
    page = Page(options.page.resolve())
    page.feed(text)
    page.close()
    css = "\n".join(page.css) + "".join(_stylesheets(page.file.parent, text))
    findings = [*page.found, *_document(page, text), *_style(css, "\n".join(page.script))]
    findings.sort(key=lambda one: (one[0] != "error", one[1]))
    errors = sum(one[0] == "error" for one in findings)
    shown = [
        {"level": level, "line": line, "rule": rule, "problem": words}
        for level, line, rule, words in findings
    ]
    print(
        json.dumps(
            {"errors": errors, "warnings": len(shown) - errors, "findings": shown},
            ensure_ascii=False,
            indent=1,
        )
    )


def _stylesheets(folder: Path, text: str) -> list[str]:
    names = re.findall(r"<link[^>]+href=[\"']([^\"':]+\.css)[\"']", text)
    return [(folder / name).read_text(encoding="utf-8") for name in names if (folder / name).is_file()]


def _document(page: Page, text: str) -> list[Finding]:
    found: list[Finding] = []
    if not text.lstrip().lower().startswith("<!doctype html"):
        found.append(("error", 1, "document", "the page does not begin with <!doctype html>"))
    if not page.meta.get("title"):
        found.append(("error", 1, "document", "there is no <title>"))
    if "viewport" not in page.meta:
        found.append(("error", 1, "phone", "there is no <meta name=viewport>: phones show the page tiny"))
    elif re.search(r"user-scalable\s*=\s*no|maximum-scale\s*=\s*1(?!\d)", page.meta["viewport"]):
        found.append(("error", 1, "phone", "the viewport forbids zooming"))
    if not page.tags["main"]:
        found.append(("warning", 1, "landmarks", "there is no <main>"))
    if page.tags["h1"] != 1:
        found.append(("warning", 1, "headings", f"{page.tags['h1']} <h1>; a page has one"))
    level = 0
    for now, line in page.headings:
        if now > level + 1:
            found.append(
                (
                    "warning",
                    line,
                    "headings",
                    f"<h{now}> follows <h{level}>" if level else f"the first heading is <h{now}>",
                )
            )
        level = now
    found += [
        ("error", 1, "ids", f"id {name!r} is used {times} times")
        for name, times in page.ids.items()
        if times > 1
    ]
    found += [
        ("error", line, "reference", f"#{name} does not exist")
        for line, name in page.targets
        if name not in page.ids and name != "top"
    ]
    for line, tag, given, inside in page.fields:
        if not (
            inside
            or given.get("id") in page.labels
            or given.get("aria-label")
            or given.get("aria-labelledby")
        ):
            found.append(
                (
                    "error",
                    line,
                    "label",
                    f"<{tag} name={given.get('name', '')!r}> has no label; a placeholder is none",
                )
            )
    return found


def _style(css: str, script: str) -> list[Finding]:
    found: list[Finding] = []
    clean = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    schemes = [
        dict(re.findall(r"--([\w-]+)\s*:\s*(#[0-9a-fA-F]{3,6})\b", part))
        for part in re.split(r"@media[^{]*dark[^{]*\{", clean)
    ]
    for name, colors in zip(("light", "dark"), schemes, strict=False):
        for a, b in VARIABLE_PAIRS:
            first, second = parse_hex(colors.get(a, "")), parse_hex(colors.get(b, ""))
            if first and second and contrast(first, second) < 4.5:
                found.append(
                    (
                        "error",
                        1,
                        "contrast",
                        f"{name}: --{a} on --{b} is {contrast(first, second):.1f}; 4.5 is needed",
                    )
                )
    if re.search(r"outline\s*:\s*(?:none|0)\b", clean) and ":focus-visible" not in clean:
        found.append(("error", 1, "focus", "outlines are removed and :focus-visible shows nothing instead"))
    if re.search(r"\b(?:animation|transition)\s*:", clean) and "prefers-reduced-motion" not in clean:
        found.append(("warning", 1, "motion", "animations do not respect prefers-reduced-motion"))
    small = [size for size in re.findall(r"font-size\s*:\s*([\d.]+)px", clean) if float(size) < 12]
    if small:
        found.append(("warning", 1, "size", f"text of {min(map(float, small)):g} px is too small"))
    if clean.strip() and not re.search(r"@media|@container|clamp\(|auto-fi[lt]|flex-wrap", clean):
        found.append(("warning", 1, "phone", "no rule adapts the layout to small screens"))
    for match in re.finditer(r"(?<![-\w])width\s*:\s*(\d{4,})px", clean):
        found.append(("warning", 1, "phone", f"a fixed width of {match[1]} px does not fit a phone"))
    found += [
        ("warning", 1, "offline", f"the style loads {url[:60]}")
        for url in re.findall(r"url\([\"']?(https?://[^\"')]+)", clean)
    ]
    found += [
        ("warning", 1, "offline", f"the script fetches {url[:60]}")
        for url in re.findall(r"(?:fetch|import)\(\s*[\"'](https?://[^\"']+)", script)
    ]
    if "localStorage" in script and "try" not in script:
        found.append(
            ("warning", 1, "script", "localStorage can throw in private windows and embedded previews")
        )
    return found


if __name__ == "__main__":
    main()
