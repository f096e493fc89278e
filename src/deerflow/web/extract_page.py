"""Extracts the text of pages that it reads from standard input: a separate program.

Pages are untrusted and may be malicious. So this runs as a separate process with hard limits on time and
memory, is started as a script, and imports nothing of DeerFlow. Each request is a line of JSON and the page;
each answer is a line of JSON and the text.
"""

import codecs
import json
import logging
import os
import re
import resource
import select
import signal
from contextlib import suppress
from copy import deepcopy
from importlib import import_module
from typing import Any, BinaryIO
from urllib.parse import unquote, urljoin, urlsplit

import trafilatura
from markdownify import MarkdownConverter

etree: Any = import_module("lxml.etree")
html: Any = import_module("lxml.html")

MAX_MEMORY = 1536 * 1024 * 1024
MAX_CPU_SECONDS = 600
IDLE_SECONDS = 120
EXTRACT_SECONDS = 5.0
"""After this time the page is converted without trafilatura, some of whose steps are quadratic."""
SNIFFED_BYTES = 4096
SHORT_CHARS = 250
MAX_PRUNED_SHARE = 0.5
MAX_SURPLUS = 1.25
REGION_SHARE = 0.85
MIN_SHARE = 0.6
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{2,40})""", re.IGNORECASE)
_XML_CHARSET = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{2,40})["']""", re.IGNORECASE)
_LABELS = {
    "ascii": "cp1252",
    "iso-8859-1": "cp1252",
    "iso8859-1": "cp1252",
    "latin-1": "cp1252",
    "latin1": "cp1252",
    "us-ascii": "cp1252",
    "big5": "big5hkscs",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "shift_jis": "cp932",
    "shift-jis": "cp932",
    "x-sjis": "cp932",
    "utf8": "utf-8",
}
"""Names of encodings on the web that mean a larger encoding than Python's of the same name."""
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DROPPED_TAGS = [
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "canvas",
    "iframe",
    "object",
    "embed",
    "form",
    "button",
    "input",
    "select",
    "textarea",
    "dialog",
    "nav",
    "footer",
    "aside",
]
_BOILERPLATE = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|sidebar|side-bar|breadcrumbs?|footer|cookies?|consent|gdpr|"
    r"banner|advert(?:isement)?s?|ads?|promo|sponsor(?:ed)?|newsletter|subscribe|signup|share|sharing|social|"
    r"related|recommend(?:ed|ations)?|popular|trending|pagination|pager|skip-link|toolbar|"
    r"widget|masthead|site-header|page-header|global-header|overlay|modal|popup)(?:$|[\s_-])",
    re.IGNORECASE,
)
_CONTAINERS = frozenset({"div", "header", "ol", "table", "td", "ul"})
_NAMED_TAGS = _CONTAINERS | {"a", "p", "section", "small", "span"}
_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "complementary", "search", "dialog", "alertdialog"}
)
_MAIN = ("//main", "//*[@role='main']", "//article", "//*[@id='content' or @id='main' or @id='main-content']")
_EMPTY_LINE = "\u2424"
"""Stands for an empty line of code while trafilatura works, which removes these lines."""
_BLOCKED = re.compile(
    r"just a moment|verify(?:ing)? (?:that )?you are (?:a )?human|enable javascript|"
    r"javascript is (?:disabled|required)|access denied|captcha|"
    r"unusual traffic|attention required|checking your browser|请完成(?:安全)?验证|"
    r"before you continue|accept (?:all )?cookies",
    re.IGNORECASE,
)


class UnreadablePageError(Exception):
    """The page cannot be read; the message says why."""


def main() -> None:
    """Answer requests until the input ends or nothing comes for a while."""
    for name, limit in (
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_CPU, MAX_CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(name, (limit, limit))
    logging.disable()
    requests, answers = os.fdopen(0, "rb"), os.fdopen(1, "wb")
    while select.select([requests], [], [], IDLE_SECONDS)[0] and (line := requests.readline()):
        header = json.loads(line)
        _write(answers, _answer(header, requests.read(header["size"])))


def _answer(header: dict[str, Any], content: bytes) -> dict[str, Any]:
    try:
        return READERS[header["kind"]](content, header["url"], header["charset"])
    except UnreadablePageError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "it needs more memory than a page may"}
    except Exception as error:  # the libraries raise anything on a damaged page
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}


def _write(answers: BinaryIO, answer: dict[str, Any]) -> None:
    text = answer.pop("markdown", "").encode(errors="replace")
    answers.write(json.dumps({**answer, "size": len(text)}).encode() + b"\n" + text)
    answers.flush()


def decoded(content: bytes, charset: str | None) -> str:
    """Decode a page: by its byte order mark, the server's word, its own word, else by its content."""
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, errors="replace")
    start = content[:SNIFFED_BYTES]
    named = [charset] if charset else []
    named += [
        found[1].decode() for found in (_META_CHARSET.search(start), _XML_CHARSET.search(start)) if found
    ]
    for label in [*named, "utf-8"]:
        try:
            return content.decode(_LABELS.get(label.strip().lower(), label))
        except (LookupError, UnicodeDecodeError):
            continue
    from charset_normalizer import from_bytes  # noqa: PLC0415 - slow, and few pages need it

    found = from_bytes(content[:100_000]).best()
    if named and found is None:
        return content.decode(_known(named[0]), errors="replace")
    return content.decode(found.encoding if found else "cp1252", errors="replace")


def _known(label: str) -> str:
    try:
        return codecs.lookup(_LABELS.get(label.strip().lower(), label)).name
    except LookupError:
        return "utf-8"


def read_text(content: bytes, url: str, charset: str | None) -> dict[str, Any]:
    """Return a text file as it is."""
    if b"\0" in content[:SNIFFED_BYTES] and not content.startswith(tuple(mark for mark, _ in _BOMS)):
        raise UnreadablePageError("it is a binary file")
    text = decoded(content, charset)
    first = text.lstrip()[:200].partition("\n")[0]
    title = first[2:].strip() if first.startswith("# ") else _name(url)
    return {"title": title, "markdown": text}


def read_json(content: bytes, url: str, charset: str | None) -> dict[str, Any]:
    """Return JSON indented, as code."""
    text = decoded(content, charset)
    with suppress(ValueError, RecursionError):  # then it is shown as it came
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return {"title": _name(url), "markdown": f"```json\n{text}\n```"}


def read_html(content: bytes, url: str, charset: str | None) -> dict[str, Any]:
    """Return the main text of a page as Markdown, with its title, date and author."""
    text = decoded(content, charset)
    tree = _parsed(text)
    if tree is None:
        raise UnreadablePageError("there is no HTML in it")
    base = tree.xpath("string(//base/@href)")
    url = urljoin(url, base) if base else url
    about = _metadata(tree, url)
    title = about.pop("title") or " ".join(tree.xpath("string(//title)").split()) or _name(url)
    _prune(tree)
    _unwrap_layout(tree)
    markdown = _extracted(tree, url)
    region = _main_region(tree)
    if region is not None and _is_better(region, markdown):
        markdown = _converted(region, url)
    note = None
    if len(markdown) < SHORT_CHARS and _BLOCKED.search(f"{title} {text[:20000]}"):
        note = (
            "the site probably showed a check for robots, a consent form or an empty page instead of its text"
        )
    if not markdown.strip() and note is None:
        note = "no text was found; the page may need JavaScript"
    return {**about, "title": title[:300], "markdown": markdown, "note": note}


def _parsed(text: str) -> Any:
    try:
        return html.document_fromstring(text.encode(), parser=html.HTMLParser(encoding="utf-8"))
    except (etree.ParserError, ValueError):
        return None


def _metadata(tree: Any, url: str) -> dict[str, Any]:
    found = trafilatura.extract_metadata(tree, default_url=url, extensive=False)
    title = " ".join((found.title or "").split())
    return {"title": title, "published": found.date, "author": found.author, "site": found.sitename}


def _prune(tree: Any) -> None:
    """Remove what surrounds texts on most sites, by the names of elements; never most of the page."""
    for body in tree.xpath("//body"):
        most = len(body.text_content()) * MAX_PRUNED_SHARE
        for element in list(body.iter()):
            if element.getparent() is None or element is body or not isinstance(element.tag, str):
                continue
            if _is_boilerplate(element) and len(element.text_content()) <= most:
                element.drop_tree()


def _extracted(tree: Any, url: str) -> str:
    copy = deepcopy(tree)  # trafilatura changes it
    for block in copy.iter("pre"):
        for part in block.iter():
            part.text, part.tail = _marked(part.text), part.tail if part is block else _marked(part.tail)
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, EXTRACT_SECONDS)
    try:
        found = trafilatura.extract(
            copy,
            url=url,
            output_format="markdown",
            include_links=True,
            include_tables=True,
            include_formatting=True,
            include_comments=False,
            favor_recall=True,
        )
    except (RecursionError, TimeoutError):
        return ""
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    markdown = (found or "").replace(_EMPTY_LINE, "")
    return re.sub(r"^(```)\n(?=[|#])", r"\1\n\n", markdown, flags=re.MULTILINE)


def _give_up(number: int, frame: Any) -> None:
    raise TimeoutError


def _marked(code: str | None) -> str | None:
    return re.sub(r"\n[ \t]*(?=\n)", f"\n{_EMPTY_LINE}", code) if code else code


def _main_region(tree: Any) -> Any:
    """Return the element with the main text; None if there is no body."""
    for path in _MAIN:
        if found := tree.xpath(path):
            return max(found, key=lambda element: len(element.text_content()))
    region = next(iter(tree.xpath("//body")), None)
    while region is not None and len(region):
        inner = max(region, key=_own_chars)
        if inner.tag not in ("div", "section", "center") or _own_chars(inner) < REGION_SHARE * _own_chars(
            region
        ):
            break
        region = inner
    return region


def _own_chars(element: Any) -> int:
    """Return how much text an element has outside links."""
    if not isinstance(element.tag, str):
        return 0
    linked = sum(len(_words(link.text_content())) for link in element.iter("a"))
    return len(_words(element.text_content())) - linked


def _is_boilerplate(element: Any) -> bool:
    if element.tag in ("main", "article"):
        return False
    if element.tag in _DROPPED_TAGS:
        return True
    hidden = element.get("hidden") is not None or element.get("aria-hidden") == "true"
    if hidden or element.get("role") in _ROLES:
        return True
    names = element.get("class") or "" if element.tag in _NAMED_TAGS else ""
    if element.tag in _CONTAINERS:  # not of headings and sections, whose ids repeat words of the text
        names += f" {element.get('id') or ''}"
    return bool(names.strip() and _BOILERPLATE.search(names))


def _unwrap_layout(tree: Any) -> None:
    """Turn tables that arrange the page, rather than data, into plain blocks."""
    for table in tree.xpath("//table[.//td//p or .//td//h1 or .//td//h2 or .//td//h3 or .//td//table]"):
        for element in table.iter("table", "tbody", "thead", "tr", "td", "th"):
            if not (element.tag != "table" and _inner_table(element, table)):
                element.tag = "div"


def _inner_table(element: Any, outer: Any) -> bool:
    """Return whether an element belongs to a data table inside `outer`."""
    nearest = next(element.iterancestors("table"), outer)
    return nearest is not outer and nearest.tag == "table"


def _is_better(region: Any, markdown: str) -> bool:
    """Return whether the region itself should be converted instead of trafilatura's text.

    It should if it has hardly more text, since conversion keeps all headings, quotes and code, or if
    trafilatura missed much of its text that is not in links.
    """
    extracted = len(_words(markdown))
    whole = len(_words(region.text_content()))
    return whole <= MAX_SURPLUS * extracted or extracted < MIN_SHARE * _own_chars(region)


def _converted(region: Any, url: str) -> str:
    for link in region.iter("a"):
        if link.get("href"):
            link.set("href", urljoin(url, link.get("href")))
    source = html.tostring(region, encoding="unicode")
    converter = MarkdownConverter(
        heading_style="ATX",
        bullets="-",
        strip=["img"],
        code_language_callback=_code_language,
        table_infer_header=True,
        escape_asterisks=False,  # what the page says can be quoted literally
        escape_underscores=False,
    )
    return re.sub(r"\n{3,}", "\n\n", str(converter.convert(source))).strip()


def _code_language(block: Any) -> str | None:
    code = block.find("code")
    names = [*(block.get("class") or []), *((code.get("class") or []) if code else [])]
    found = (name for name in names if name.startswith(("language-", "lang-")))
    return next((name.partition("-")[2] for name in found), None)


def _words(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)


def _name(url: str) -> str:
    parts = urlsplit(url)
    return unquote(parts.path.rstrip("/").rpartition("/")[2]) or parts.hostname or url


READERS = {"html": read_html, "text": read_text, "json": read_json}

if __name__ == "__main__":
    main()
