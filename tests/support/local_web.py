"""A web of more than 300 linked pages on the loopback.

HTML of many styles, PDF, charsets, redirects, cookies, slow and broken servers.
"""

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import web
from support.documents import pdf, word
from support.web_pages import labelled_page, labelled_pages, page_path, story_of

PAGES = 160
CHARSETS = (
    ("gb18030", "zh", "gb2312"),
    ("big5", "zh-tw", "big5"),
    ("utf-8", "zh", "utf-8"),
    ("utf-16", "zh", ""),
    ("cp932", "ja", "shift_jis"),
    ("euc-jp", "ja", "euc-jp"),
    ("cp949", "ko", "euc-kr"),
    ("cp1251", "ru", "windows-1251"),
    ("koi8-r", "ru", "koi8-r"),
    ("cp1252", "de", "iso-8859-1"),
    ("iso8859-2", "pl", "iso-8859-2"),
    ("cp1253", "el", "windows-1253"),
)
"""Encodings, the language that each is for, and the name that pages give it."""
SENTENCES = {
    "zh": "研究小组公布了过去一百年的水流数据，这项工作预计还需要两年时间。",
    "zh-tw": "研究小組公布了過去一百年的水流資料，這項工作預計還需要兩年時間。",
    "ja": "研究グループは過去百年の水の流れのデータを公開し、作業はあと二年かかる見込みです。",
    "ko": "연구진은 지난 백 년 동안의 물 흐름 자료를 공개했으며 작업은 이 년 더 걸릴 것으로 보인다.",
    "ru": "Исследовательская группа опубликовала данные о течении воды за последние сто лет.",
    "de": "Die Forschungsgruppe veröffentlichte Daten über den Fluss – für Münster, Köln und Überlingen.",
    "pl": "Zespół badawczy opublikował dane o przepływie wody z ostatnich stu lat, łącznie z żółtą rzeką.",
    "el": "Η ερευνητική ομάδα δημοσίευσε δεδομένα για τη ροή του νερού των τελευταίων εκατό ετών.",
}
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301"
    "0100c9fe92ef0000000049454e44ae426082"
)
Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class LocalWeb:
    """Where it listens, what was requested, and which paths it has."""

    url: str = ""
    hits: Counter[str] = field(default_factory=Counter)
    agents: set[str] = field(default_factory=set)
    robots: str = "User-agent: *\nDisallow: /private/\n"
    handles: dict[str, Handle] = field(default_factory=dict)
    at_once: int = 0
    most_at_once: int = 0

    @property
    def paths(self) -> list[str]:
        return list(self.handles)


@asynccontextmanager
async def local_web() -> AsyncIterator[LocalWeb]:
    """Yield the served web; all of it is on one port of 127.0.0.1."""
    served = LocalWeb()
    for add in (_articles, _charsets, _documents, _redirects, _cookies, _slow, _broken, _files):
        add(served)

    async def handle(request: web.Request) -> web.StreamResponse:
        path = request.path
        served.hits[path] += 1
        served.agents.add(request.headers.get("User-Agent", ""))
        if path == "/robots.txt":
            return web.Response(text=served.robots)
        served.at_once += 1
        served.most_at_once = max(served.most_at_once, served.at_once)
        try:
            return await served.handles[path](request) if path in served.handles else web.Response(status=404)
        finally:
            served.at_once -= 1

    app = web.Application()
    app.router.add_route("GET", "/{tail:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await runner.cleanup()


def _fixed(body: bytes | str, kind: str = "text/html", **options: object) -> Handle:
    async def handle(request: web.Request) -> web.StreamResponse:
        content = body.encode() if isinstance(body, str) else body
        return web.Response(body=content, headers={"Content-Type": kind, **options})  # type: ignore[dict-item]

    return handle


def _articles(served: LocalWeb) -> None:
    for page in labelled_pages(PAGES):
        served.handles[page.path] = _fixed(page.html, "text/html; charset=utf-8")
    for number in range(20):
        body = gzip.compress(labelled_page(number, PAGES).html.encode())
        served.handles[f"/gzip/{number}.html"] = _fixed(body, **{"Content-Encoding": "gzip"})


def _charsets(served: LocalWeb) -> None:
    for number, (encoding, language, name) in enumerate(CHARSETS * 2):
        text = SENTENCES[language]
        by_header = number >= len(CHARSETS)
        meta = "" if by_header or not name else f'<meta charset="{name}">'
        html = (
            f"<html lang={language}><head>{meta}<title>{text[:12]}</title></head>"
            f"<body><main><h1>{text[:12]}</h1>"
            + "".join(f"<p>{text} {n}</p>" for n in range(8))
            + f'<p><a href="{page_path(number)}">1</a></p></main></body></html>'
        )
        kind = f"text/html; charset={name}" if by_header and name else "text/html"
        served.handles[f"/charset/{number}.html"] = _fixed(html.encode(encoding), kind)


def _documents(served: LocalWeb) -> None:
    for number in range(20):
        body = pdf(f"Report {number} on rivers", f"The second page of report {number}")
        served.handles[f"/reports/{number}.pdf"] = _fixed(body, "application/pdf")
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    for number in range(5):
        served.handles[f"/reports/{number}.docx"] = _fixed(word(f"Word report {number}"), kind)


def _redirects(served: LocalWeb) -> None:
    def to(target: str, status: int) -> Handle:
        async def handle(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": target})

        return handle

    for number in range(25):
        status = (301, 302, 303, 307, 308)[number % 5]
        target = page_path(number) if number % 2 else f"..{page_path(number)}"
        served.handles[f"/moved/{number}"] = to(target, status)
    for number in range(6):
        served.handles[f"/chain/{number}"] = to(f"/chain/{number + 1}" if number < 5 else page_path(5), 302)
    served.handles["/loop"] = to("/loop", 302)
    for name, target in (
        ("file", "file:///etc/passwd"),
        ("metadata", "http://169.254.169.254/latest/meta-data/"),
        ("private", "http://10.0.0.1/"),
        ("secret", "http://user:pass@127.0.0.1/"),
        ("broken", "http://[::1/"),
    ):
        served.handles[f"/away/{name}"] = to(target, 302)


def _cookies(served: LocalWeb) -> None:
    def needing(number: int) -> Handle:
        async def handle(request: web.Request) -> web.StreamResponse:
            if request.cookies.get("seen") == str(number):
                return web.Response(text=labelled_page(number, PAGES).html, content_type="text/html")
            answer = web.Response(status=302, headers={"Location": request.path})
            answer.set_cookie("seen", str(number))
            return answer

        return handle

    for number in range(15):
        served.handles[f"/cookie/{number}"] = needing(number)


def _slow(served: LocalWeb) -> None:
    def after(seconds: float, number: int) -> Handle:
        async def handle(request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(seconds)
            return web.Response(text=labelled_page(number, PAGES).html, content_type="text/html")

        return handle

    for number in range(10):
        served.handles[f"/slow/{number}"] = after(0.05, number)

    async def drip(request: web.Request) -> web.StreamResponse:
        """Send a byte now and then, without end."""
        answer = web.StreamResponse(headers={"Content-Type": "text/html"})
        await answer.prepare(request)
        with suppress(ConnectionError, asyncio.CancelledError):
            while True:
                await answer.write(b"<p>")
                await asyncio.sleep(0.05)
        return answer

    served.handles["/drip"] = drip


def _broken(served: LocalWeb) -> None:
    fine = labelled_page(1, PAGES).html
    deep = "<div>" * 20_000 + "<p>The deepest paragraph of all has a few words in it.</p>"
    challenge = (
        "<html><head><title>Just a moment...</title></head><body><p>Checking your browser</p></body></html>"
    )
    served.handles |= {
        "/broken/deep": _fixed(f"<html><body><main><p>{story_of(1).intro[0]}</p>{deep}</main></body></html>"),
        "/broken/cut": _fixed(fine[: len(fine) // 2]),
        "/broken/empty": _fixed(""),
        "/broken/binary": _fixed(bytes(range(256)) * 40),
        "/broken/gzip": _fixed(b"\x1f\x8bnot really", **{"Content-Encoding": "gzip"}),
        "/broken/brotli": _fixed(b"xx", **{"Content-Encoding": "br"}),
        "/broken/tags": _fixed("<p><b><i>" * 5000 + "words " * 200),
        "/broken/challenge": _fixed(challenge),
        "/broken/type": _fixed(b"\0\1\2", "application/octet-stream"),
        "/broken/huge": _fixed(b"x" * (12 * 1024 * 1024), "text/plain"),
        "/broken/bomb": _fixed(_bomb(), **{"Content-Encoding": "gzip"}),
        "/private/page": _fixed(fine),
    }

    async def flaky(request: web.Request) -> web.StreamResponse:
        if served.hits[request.path] < 3:
            return web.Response(status=503, headers={"Retry-After": "0"})
        return web.Response(text=fine, content_type="text/html")

    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/html"})
        await answer.prepare(request)
        with suppress(ConnectionError, asyncio.CancelledError):
            while True:
                await answer.write(b"<p>more and more</p>" * 4000)
        return answer

    async def failing(request: web.Request) -> web.StreamResponse:
        return web.Response(status=500)

    served.handles |= {"/flaky": flaky, "/endless": endless, "/failing": failing}


def _bomb() -> bytes:
    """Return a few hundred kilobytes that unpack to 300 MB."""
    once = gzip.compress(b"\0" * (30 * 1024 * 1024))
    return once * 10


def _files(served: LocalWeb) -> None:
    for number in range(10):
        served.handles[f"/data/{number}.json"] = _fixed(json.dumps({"n": number}), "application/json")
        served.handles[f"/notes/{number}.txt"] = _fixed(f"# Notes {number}\n\nPlain text.", "text/plain")
        served.handles[f"/images/{number}.png"] = _fixed(PIXEL, "image/png")
