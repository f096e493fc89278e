#!/usr/bin/env python3
"""Sort out a list of web links: remove doubles, group by publisher, propose which to open first.

The input has one URL per line, with an optional title behind a space or tab; '-' reads standard input.
Nothing is fetched. Exit code 0: printed; 2: an input is wrong.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

TRACKING = re.compile(r"utm_\w+|fbclid|gclid|msclkid|mc_[ce]id|igshid|ref_src|spm|share_token|yclid", re.I)
SHORTENERS = {"bit.ly", "t.co", "tinyurl.com", "goo.gl", "ow.ly", "is.gd", "dwz.cn", "t.cn", "url.cn"}
REDIRECTS = {"google.com": ("q", "url"), "l.facebook.com": ("u",), "link.zhihu.com": ("target",)}
OFFICIAL = re.compile(
    r"\.(gov|mil|int|edu)(\.[a-z]{2})?$|\.(gov|edu|ac|go|gouv|gob)\.[a-z]{2}$|\.europa\.eu$"
)
ACADEMIC = re.compile(
    r"(^|\.)(doi\.org|arxiv\.org|nature\.com|science\.org|pubmed\.ncbi\.nlm\.nih\.gov|acm\.org|ieee\.org"
    r"|springer\.com|sciencedirect\.com|cnki\.net)$"
)
DOCUMENTATION = re.compile(r"/(docs?|manual|reference|changelog|releases)(/|$)")
COMMUNITY = re.compile(
    r"(^|\.)(reddit\.com|quora\.com|medium\.com|zhihu\.com|tieba\.baidu\.com|x\.com|twitter\.com|facebook\.com"
    r"|weibo\.com|youtube\.com|tiktok\.com|csdn\.net|stackoverflow\.com|stackexchange\.com)$"
)
REFERENCE = re.compile(r"(^|\.)(wikipedia\.org|britannica\.com|baike\.baidu\.com)$")
LOGIN = re.compile(r"/(login|signin|sign-in|account|subscribe|paywall)(/|$)", re.I)
TWO_PART = {"co", "com", "org", "net", "gov", "edu", "ac", "go", "or", "ne"}
ORDER = ("official", "academic", "documentation", "publisher", "reference", "community")


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def clean(url: str) -> str:
    """Return the URL without tracking, redirect wrapper, fragment and default parts."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removeprefix("www.").removeprefix("m.")
    for key in REDIRECTS.get(host, ()):
        target = dict(parse_qsl(parts.query)).get(key, "")
        if target.startswith(("http://", "https://")):
            return clean(target)
    if host.startswith("amp."):
        host = host[4:]
    path = re.sub(r"/amp/?$", "", parts.path).rstrip("/")
    query = urlencode([(key, value) for key, value in parse_qsl(parts.query) if not TRACKING.fullmatch(key)])
    port = f":{parts.port}" if parts.port and parts.port not in (80, 443) else ""
    return urlunsplit(("https", host + port, path, query, ""))


def publisher(host: str) -> str:
    """Return the registered domain, so that subdomains count as one publisher."""
    parts = host.split(":")[0].split(".")
    is_long = len(parts) > 2 and len(parts[-1]) == 2 and parts[-2] in TWO_PART
    return ".".join(parts[-3:] if is_long else parts[-2:])


def kind(host: str, path: str) -> str:
    """Return the kind of page, by its address only."""
    if OFFICIAL.search(host):
        return "official"
    if ACADEMIC.search(host):
        return "academic"
    if REFERENCE.search(host):
        return "reference"
    if COMMUNITY.search(host):
        return "community"
    is_documentation = host.startswith(("docs.", "developer.")) or DOCUMENTATION.search(path)
    return "documentation" if is_documentation else "publisher"


def flags(url: str, seen_titles: set[str], title: str) -> list[str]:
    """Return what to beware of."""
    parts = urlsplit(url)
    found = []
    if (parts.hostname or "") in SHORTENERS:
        found.append("shortener: the target is unknown")
    if LOGIN.search(parts.path):
        found.append("probably needs a login")
    key = re.sub(r"\W+", " ", title.lower()).strip()
    if len(key) > 20 and key in seen_titles:
        found.append("same title as another link: probably a repost")
    if key:
        seen_titles.add(key)
    return found


def read_links(text: str, place: str) -> list[tuple[str, str]]:
    """Return URL and title of each line."""
    links = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        url, _, title = line.strip().replace("\t", " ").partition(" ")
        try:
            parts = urlsplit(url)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            is_url = False
        if not is_url:
            fail(f"{place}:{number}: {url[:100]!r} is not a URL that begins with http:// or https://")
        links.append((url, title.strip()))
    return links


def sort_out(links: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the different links, best first."""
    unique: dict[str, dict[str, Any]] = {}
    titles: set[str] = set()
    for url, title in links:
        tidy = clean(url)
        if tidy in unique:
            unique[tidy]["doubles"] += 1
            continue
        parts = urlsplit(tidy)
        unique[tidy] = {
            "url": tidy,
            "title": title,
            "publisher": publisher(parts.netloc),
            "kind": kind(parts.netloc, parts.path),
            "flags": flags(tidy, titles, title),
            "doubles": 0,
            "host": unquote(parts.netloc),
        }
    ranked = sorted(unique.values(), key=lambda each: (bool(each["flags"]), ORDER.index(each["kind"])))
    first, again, seen = [], [], set()
    for each in ranked:  # one of each publisher before the second of any
        (again if each["publisher"] in seen else first).append(each)
        seen.add(each["publisher"])
    return first + again


def main() -> int:
    """Read the links, print them in order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("links", help="text file with one link per line, or - for standard input")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    try:
        text = (
            sys.stdin.read() if options.links == "-" else Path(options.links).read_text(encoding="utf-8-sig")
        )
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{options.links} cannot be read: {error}")
    links = read_links(text, options.links)
    result = sort_out(links)
    if options.format == "json":
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return 0
    publishers = len({each["publisher"] for each in result})
    print(f"{len(links)} links, {len(result)} different, {publishers} publishers. Open in this order:")
    for number, each in enumerate(result, 1):
        notes = "; ".join([each["kind"], *each["flags"]])
        print(f"{number}. {each['url']}  {each['title']}".rstrip() + f"  ({notes})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
