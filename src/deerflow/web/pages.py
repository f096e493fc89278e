"""A page as text: title, outline of headings, and parts of bounded size."""

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from deerflow.errors import WebError

FOLDER = "/mnt/user-data/workspace/.web"
MAX_HEADINGS = 60
MAX_HEADING_CHARS = 120
_HEADING = re.compile(r"^(#{1,6})[ \t]+(\S.*)$", re.MULTILINE)
_FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)
_UNFIT = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page of the web, extracted."""

    url: str
    """The address after redirects."""
    title: str
    markdown: str
    """The main text."""
    published: str | None = None
    author: str | None = None
    site: str | None = None
    image: bytes | None = None
    """The image itself, if the URL is one."""
    mime_type: str | None = None
    note: str | None = None
    """What the reader should know, such as that the site asks for a sign-in."""

    @property
    def text(self) -> str:
        """The page as it is stored and shown: title, origin, main text."""
        site = None if self.site and self.site in self.url else self.site  # else the address says it
        by = ", ".join(filter(None, (self.author, site)))
        lines = [f"Source: {self.url}"]
        lines += [f"Published: {self.published}"] if self.published else []
        lines += [f"By: {by}"] if by else []
        lines += [f"Note: {self.note}"] if self.note else []
        body = _without_title(self.markdown, self.title)
        return f"# {self.title}\n\n" + "\n".join(lines) + f"\n\n{body.strip()}\n"


def page_path(url: str, suffix: str = ".md") -> str:
    """Return the path of the file that keeps a page; it is readable, and unique to the URL."""
    parts = urlsplit(url)
    words = (
        _UNFIT.sub("-", f"{parts.hostname or ''} {unquote(parts.path)}".lower()).strip("-")[:60].strip("-")
    )
    digest = hashlib.blake2b(url.encode(), digest_size=4).hexdigest()
    return f"{FOLDER}/{words or 'page'}-{digest}{suffix}"


def part_of(text: str, *, offset: int, limit: int, path: str | None) -> str:
    """Return the part of a text at `offset`, with a note on how to read on and, first, its outline."""
    total = len(text)
    if offset < 0 or offset >= total:
        raise WebError(f"The page has {total} characters; offset must be from 0 to {total - 1}.")
    end = _cut(text, offset, limit)
    shown = text[offset:end]
    if offset == 0 and end == total:
        return shown + (f"\n[The whole page; stored in {path}.]" if path else "")
    rest = f" Read on with offset={end}." if end < total else " This is the end of the page."
    stored = f" All of it is in {path}: use grep or read_file on it." if path else ""
    outline = outline_of(text) if offset == 0 else []
    headings = "\nOutline (offset and heading):\n" + "\n".join(outline) if outline else ""
    return f"{shown.rstrip()}\n\n[Characters {offset} to {end} of {total}.{rest}{stored}{headings}]"


def outline_of(text: str) -> list[str]:
    """Return the headings with their offsets; lines of code that look like headings do not count."""
    fences = [found.start() for found in _FENCE.finditer(text)]
    code = list(zip(fences[::2], [*fences[1::2], len(text)], strict=False))
    lines = []
    for found in _HEADING.finditer(text):
        position = found.start()
        if any(start <= position < end for start, end in code):
            continue
        words = " ".join(found[2].split())[:MAX_HEADING_CHARS]
        lines.append(f"{position}: {'  ' * (len(found[1]) - 1)}{words}")
        if len(lines) > MAX_HEADINGS:
            return [*lines[:MAX_HEADINGS], "…"]
    return lines


def _cut(text: str, offset: int, limit: int) -> int:
    """Return where the part ends: at a paragraph or a line if there is one in its second half."""
    end = offset + limit
    if end >= len(text):
        return len(text)
    for separator in ("\n\n", "\n", " "):
        found = text.rfind(separator, offset + limit // 2, end)
        if found > 0:
            return found + len(separator)
    return end


def _without_title(markdown: str, title: str) -> str:
    """Remove a first heading that repeats the title."""
    text = markdown.lstrip()
    first, _, rest = text.partition("\n")
    is_title = first.startswith("# ") and first[2:].strip().casefold() == title.strip().casefold()
    return rest if is_title else text
