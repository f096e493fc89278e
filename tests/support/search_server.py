"""A server that speaks the HTTP APIs of the search and page providers, each below its own path.

Requests and answers follow the providers' public documents: a request with a wrong key, method or field is
refused as the provider refuses it.
"""

import asyncio
import datetime
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

KEY = "the-key"
PAGE_TEXT = "# A page\n\nThe page says that deer run at sixty kilometres an hour."
DUCKDUCKGO_HOSTS = ("duckduckgo.com", "html.duckduckgo.com")
Json = Mapping[str, Any]


@dataclass(slots=True)
class SearchServer:
    """Where it listens, what it was asked, and how it misbehaves."""

    url: str = ""
    asked: list[tuple[str, Json]] = field(default_factory=list)
    """The provider and the query or body of each accepted request."""
    failures: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    """Statuses and headers that the next requests of a provider get instead of an answer."""
    requests: Counter[str] = field(default_factory=Counter)
    count: int = 20
    """How many results each provider has."""

    def results(self, name: str, most: int, make: Callable[[int], Json]) -> list[Json]:
        return [make(number) for number in range(min(self.count, most))]


def page_url(number: int) -> str:
    return f"https://deer.example/page/{number}"


@asynccontextmanager
async def search_server() -> AsyncIterator[SearchServer]:
    """Yield a server on the loopback that answers until the block is left."""
    served = SearchServer()
    app = web.Application()
    for name, (method, path, answer) in ROUTES.items():
        app.router.add_route(method, path, _handler(served, name.partition(" ")[0], answer))
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await runner.cleanup()


def _handler(served: SearchServer, name: str, answer: "Answer") -> Any:
    async def handle(request: web.Request) -> web.StreamResponse:
        served.requests[name] += 1
        if waiting := served.failures.get(name):
            status, headers = waiting.pop(0)
            return web.json_response({"error": "not now"}, status=status, headers=headers)
        try:
            said = dict(request.query) if request.method == "GET" else await request.json()
            found = answer(served, request, said)
        except _RefusedError as refused:
            return web.json_response({"error": str(refused)}, status=refused.status)
        served.asked.append((name, said))
        if isinstance(found, str):
            return web.Response(text=found, content_type="text/html")
        return web.json_response(found)

    return handle


class _RefusedError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


Answer = Callable[[SearchServer, web.Request, Json], Any]


def _bearer(request: web.Request) -> None:
    if request.headers.get("Authorization") != f"Bearer {KEY}":
        raise _RefusedError(401, "Unauthorized: missing or invalid API key.")


def _header(request: web.Request, name: str) -> None:
    if request.headers.get(name) != KEY:
        raise _RefusedError(401, "Invalid token")


def _need(said: Json, **kinds: type) -> None:
    for name, kind in kinds.items():
        if not isinstance(said.get(name), kind) or said[name] == "":
            raise _RefusedError(422, f"{name} is required")


def _tavily(served: SearchServer, request: web.Request, said: Json) -> Json:
    _bearer(request)
    _need(said, query=str, max_results=int)
    found = served.results(
        "tavily",
        said["max_results"],
        lambda n: {
            "title": f"Deer {n}",
            "url": page_url(n),
            "content": f"About deer {n}",
            "score": 0.9 - n / 100,
            "raw_content": None,
        },
    )
    return {"query": said["query"], "images": [], "results": found, "response_time": 0.1}


def _tavily_extract(served: SearchServer, request: web.Request, said: Json) -> Json:
    _bearer(request)
    _need(said, urls=list)
    pages = [{"url": url, "raw_content": PAGE_TEXT, "images": []} for url in said["urls"]]
    return {"results": pages, "failed_results": [], "response_time": 0.02}


def _brave(served: SearchServer, request: web.Request, said: Json) -> Json:
    _header(request, "X-Subscription-Token")
    _need(said, q=str)
    if not 1 <= int(said["count"]) <= 20:
        raise _RefusedError(422, "count must be between 1 and 20")
    found = served.results(
        "brave",
        int(said["count"]),
        lambda n: {
            "type": "search_result",
            "title": f"Deer {n}",
            "url": page_url(n),
            "description": f"About <strong>deer</strong> {n} &amp; elk",
            "page_age": "2026-01-02T00:00:00",
        },
    )
    return {"type": "search", "query": {"original": said["q"]}, "web": {"type": "search", "results": found}}


def _brave_images(served: SearchServer, request: web.Request, said: Json) -> Json:
    _header(request, "X-Subscription-Token")
    found = served.results(
        "brave",
        int(said["count"]),
        lambda n: {
            "type": "image_result",
            "title": f"Deer {n}",
            "url": page_url(n),
            "thumbnail": {"src": f"https://img.example/{n}s.jpg"},
            "properties": {"url": f"https://img.example/{n}.jpg"},
        },
    )
    return {"type": "images", "results": found}


def _serper(served: SearchServer, request: web.Request, said: Json) -> Json:
    _header(request, "X-API-KEY")
    _need(said, q=str, num=int)
    found = served.results(
        "serper",
        said["num"],
        lambda n: {
            "title": f"Deer {n}",
            "link": page_url(n),
            "snippet": f"About deer {n}",
            "date": "2 days ago",
            "position": n + 1,
        },
    )
    return {"searchParameters": {"q": said["q"], "type": "search"}, "organic": found, "credits": 1}


def _serper_images(served: SearchServer, request: web.Request, said: Json) -> Json:
    _header(request, "X-API-KEY")
    found = served.results(
        "serper",
        said["num"],
        lambda n: {
            "title": f"Deer {n}",
            "imageUrl": f"https://img.example/{n}.jpg",
            "thumbnailUrl": f"https://img.example/{n}s.jpg",
            "source": "Deer",
            "link": page_url(n),
        },
    )
    return {"images": found}


def _searxng(served: SearchServer, request: web.Request, said: Json) -> Any:
    _need(said, q=str)
    if said.get("format") != "json":
        return "<html><body>results for people</body></html>"
    if said.get("categories") == "images":
        found = served.results(
            "searxng",
            served.count,
            lambda n: {
                "title": f"Deer {n}",
                "url": page_url(n),
                "img_src": f"https://img.example/{n}.jpg",
                "thumbnail_src": f"https://img.example/{n}s.jpg",
            },
        )
    else:
        found = served.results(
            "searxng",
            served.count,
            lambda n: {
                "title": f"Deer {n}",
                "url": page_url(n),
                "content": f"About deer {n}",
                "engine": "bing",
                "score": 1.5,
                "publishedDate": None,
            },
        )
    return {"query": said["q"], "number_of_results": 0, "results": found, "unresponsive_engines": []}


def _exa(served: SearchServer, request: web.Request, said: Json) -> Json:
    _header(request, "x-api-key")
    _need(said, query=str, numResults=int)
    chars = said["contents"]["text"]["maxCharacters"]
    found = served.results(
        "exa",
        said["numResults"],
        lambda n: {
            "id": page_url(n),
            "title": f"Deer {n}",
            "url": page_url(n),
            "publishedDate": "2026-01-02T00:00:00.000Z",
            "author": None,
            "text": f"About deer {n} ".ljust(5000, "x")[:chars],
        },
    )
    return {"requestId": "r", "resolvedSearchType": "neural", "results": found}


def _exa_contents(served: SearchServer, request: web.Request, said: Json) -> Json:
    _header(request, "x-api-key")
    _need(said, urls=list)
    pages = [{"id": url, "url": url, "title": "A page", "text": PAGE_TEXT} for url in said["urls"]]
    return {"results": pages, "statuses": [{"id": url, "status": "success"} for url in said["urls"]]}


def _jina(served: SearchServer, request: web.Request, said: Json) -> Json:
    _bearer(request)
    _need(said, q=str)
    assert request.headers["Accept"] == "application/json"
    found = served.results(
        "jina",
        10,
        lambda n: {
            "title": f"Deer {n}",
            "url": page_url(n),
            "description": f"About deer {n}",
            "date": "Jan 2, 2026",
        },
    )
    return {"code": 200, "status": 20000, "data": found, "meta": {"usage": {"tokens": 10}}}


def _jina_reader(served: SearchServer, request: web.Request, said: Json) -> Json:
    _need(said, url=str)
    data = {"title": "A page", "url": said["url"], "content": PAGE_TEXT, "publishedTime": "2026-01-02"}
    return {"code": 200, "status": 20000, "data": {**data, "usage": {"tokens": 10}}}


def _firecrawl(served: SearchServer, request: web.Request, said: Json) -> Json:
    _bearer(request)
    _need(said, query=str, limit=int)
    if said.get("sources") == ["images"]:
        images = served.results(
            "firecrawl",
            said["limit"],
            lambda n: {
                "title": f"Deer {n}",
                "imageUrl": f"https://img.example/{n}.jpg",
                "imageWidth": 10,
                "imageHeight": 10,
                "url": page_url(n),
                "position": n + 1,
            },
        )
        return {"success": True, "data": {"images": images}}
    found = _firecrawl_results(served, said["limit"])
    return {"success": True, "data": {"web": found}, "creditsUsed": 1}


def _fastcrw(served: SearchServer, request: web.Request, said: Json) -> Json:
    _bearer(request)
    _need(said, query=str, limit=int)
    return {"success": True, "data": _firecrawl_results(served, said["limit"])}


def _firecrawl_results(served: SearchServer, most: int) -> list[Json]:
    def one(n: int) -> Json:
        return {"url": page_url(n), "title": f"Deer {n}", "description": f"About deer {n}", "position": n + 1}

    return served.results("firecrawl", most, one)


def _scrape(served: SearchServer, request: web.Request, said: Json) -> Json:
    _bearer(request)
    _need(said, url=str, formats=list)
    about = {"title": "A page", "sourceURL": said["url"], "statusCode": 200}
    return {"success": True, "data": {"markdown": PAGE_TEXT, "metadata": about}}


def _infoquest(served: SearchServer, request: web.Request, said: Json) -> Json:
    _bearer(request)
    _need(said, query=str, format=str)
    if said.get("search_type") == "Images":
        images = served.results(
            "infoquest",
            served.count,
            lambda n: {"title": f"Deer {n}", "original": f"https://img.example/{n}.jpg"},
        )
        results: Json = {"images_results": images}
    else:
        organic = served.results(
            "infoquest",
            served.count,
            lambda n: {"pos": n + 1, "title": f"Deer {n}", "url": page_url(n), "desc": f"About deer {n}"},
        )
        results = {"organic": organic}
    return {"search_result": {"results": [{"content": {"results": results}}]}}


def _infoquest_reader(served: SearchServer, request: web.Request, said: Json) -> Json:
    _bearer(request)
    _need(said, url=str, format=str)
    return {"reader_result": _html()}


def _bing(served: SearchServer, request: web.Request, said: Json) -> Json:
    _header(request, "Ocp-Apim-Subscription-Key")
    _need(said, q=str)
    found = served.results(
        "bing",
        int(said["count"]),
        lambda n: {"id": f"#{n}", "name": f"Deer {n}", "url": page_url(n), "snippet": f"About deer {n}"},
    )
    return {"_type": "SearchResponse", "webPages": {"totalEstimatedMatches": 20, "value": found}}


def _bing_images(served: SearchServer, request: web.Request, said: Json) -> Json:
    _header(request, "Ocp-Apim-Subscription-Key")
    found = served.results(
        "bing",
        int(said["count"]),
        lambda n: {
            "name": f"Deer {n}",
            "contentUrl": f"https://img.example/{n}.jpg",
            "thumbnailUrl": f"https://img.example/{n}s.jpg",
            "hostPageUrl": page_url(n),
        },
    )
    return {"_type": "Images", "value": found}


def _groundroute(served: SearchServer, request: web.Request, said: Json) -> Json:
    _bearer(request)
    _need(said, query=str, max_results=int)
    if said.get("mode") == "page":
        return {"results": [{"url": said["query"], "title": "A page", "content": PAGE_TEXT}]}
    found = served.results(
        "groundroute",
        said["max_results"],
        lambda n: {
            "url": page_url(n),
            "title": f"Deer {n}",
            "snippet": f"About deer {n}",
            "source_engine": "brave",
            "published_at": None,
        },
    )
    return {"results": found}


def _crawl4ai(served: SearchServer, request: web.Request, said: Json) -> Json:
    _need(said, url=str)
    if said.get("f") not in ("raw", "fit", "bm25", "llm"):
        raise _RefusedError(400, "Invalid filter")
    return {"url": said["url"], "filter": said["f"], "query": None, "markdown": PAGE_TEXT, "success": True}


def _browserless(served: SearchServer, request: web.Request, said: Json) -> str:
    if request.query.get("token") != KEY:
        raise _RefusedError(401, "Bad or missing authentication.")
    _need(said, url=str)
    return _html()


def _html() -> str:
    text = PAGE_TEXT.partition("\n\n")[2]
    head = "<html><head><title>A page</title></head>"
    return f"{head}<body><main><h1>A page</h1><p>{text}</p></main></body></html>"


ROUTES: dict[str, tuple[str, str, Answer]] = {
    "tavily": ("POST", "/tavily/search", _tavily),
    "tavily extract": ("POST", "/tavily/extract", _tavily_extract),
    "brave": ("GET", "/brave/res/v1/web/search", _brave),
    "brave images": ("GET", "/brave/res/v1/images/search", _brave_images),
    "serper": ("POST", "/serper/search", _serper),
    "serper images": ("POST", "/serper/images", _serper_images),
    "searxng": ("GET", "/searxng/search", _searxng),
    "exa": ("POST", "/exa/search", _exa),
    "exa contents": ("POST", "/exa/contents", _exa_contents),
    "jina": ("POST", "/jina/", _jina),
    "jina reader": ("POST", "/jina-reader/", _jina_reader),
    "firecrawl": ("POST", "/firecrawl/v2/search", _firecrawl),
    "firecrawl scrape": ("POST", "/firecrawl/v2/scrape", _scrape),
    "fastcrw": ("POST", "/fastcrw/v1/search", _fastcrw),
    "fastcrw scrape": ("POST", "/fastcrw/v1/scrape", _scrape),
    "infoquest": ("POST", "/infoquest", _infoquest),
    "infoquest reader": ("POST", "/infoquest-reader", _infoquest_reader),
    "bing": ("GET", "/bing/v7.0/search", _bing),
    "bing images": ("GET", "/bing/v7.0/images/search", _bing_images),
    "groundroute": ("POST", "/groundroute/v1/search", _groundroute),
    "crawl4ai": ("POST", "/crawl4ai/md", _crawl4ai),
    "browserless": ("POST", "/browserless/content", _browserless),
}
"""The routes by name; the first word names the provider."""


@dataclass(slots=True)
class DuckDuckGo:
    """A proxy that answers as DuckDuckGo does, and the certificate of its authority."""

    proxy: str = ""
    authority: str = ""
    hosts: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    is_limited: bool = False
    """Answer 202 without results, as DuckDuckGo does to clients that ask too often."""


@asynccontextmanager
async def duckduckgo(folder: Path) -> AsyncIterator[DuckDuckGo]:
    """Yield an HTTP proxy on the loopback that answers for DuckDuckGo's hosts itself."""
    served = DuckDuckGo(authority=str(folder / "authority.pem"))
    context = _tls(folder)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        served.hosts.append(head.split(" ")[1])
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await writer.drain()
        await writer.start_tls(context)
        status, kind, body = _duck_answer(served, *await _request(reader))
        sent = body.encode()
        head = f"HTTP/1.1 {status} OK\r\nconnection: close\r\ncontent-type: {kind}\r\n"
        writer.write(f"{head}content-length: {len(sent)}\r\n\r\n".encode() + sent)
        await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    served.proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        await server.wait_closed()


async def _request(reader: asyncio.StreamReader) -> tuple[str, str]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    sizes = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
    body = await reader.readexactly(int(sizes[0].partition(":")[2])) if sizes else b""
    return head.split(" ")[1], body.decode()


def _duck_answer(served: DuckDuckGo, path: str, body: str) -> tuple[int, str, str]:
    if served.is_limited:
        return 202, "text/html", ""
    if path.startswith("/i.js"):
        found = [
            {
                "title": f"Deer {n}",
                "image": f"https://img.example/{n}.jpg",
                "thumbnail": f"https://img.example/{n}s.jpg",
                "url": page_url(n),
                "height": 10,
                "width": 10,
                "source": "Bing",
            }
            for n in range(10)
        ]
        return 200, "application/json", json.dumps({"results": found})
    if path.startswith("/html"):
        served.queries += parse_qs(body)["q"]
        rows = "".join(
            f'<div class="links_main links_deep result__body"><h2 class="result__title">'
            f'<a class="result__a" href="{page_url(n)}">Deer {n}</a></h2>'
            f'<a class="result__snippet" href="{page_url(n)}">About <b>deer</b> {n}</a></div>'
            for n in range(10)
        )
        return 200, "text/html", f"<html><body><div id='links'>{rows}</div></body></html>"
    served.queries += parse_qs(urlsplit(path).query).get("q", [])
    return 200, "text/html", '<html><script>vqd="4-123456789";</script></html>'


def _tls(folder: Path) -> ssl.SSLContext:
    """Write the certificate of an authority, and return the TLS settings of a server that it certifies."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    hosts = x509.SubjectAlternativeName([x509.DNSName(host) for host in DUCKDUCKGO_HOSTS])
    is_authority = x509.BasicConstraints(ca=True, path_length=None)
    authority = _certificate("Test authority", authority_key, authority_key, is_authority)
    certificate = _certificate("Test server", key, authority_key, hosts)
    (folder / "authority.pem").write_bytes(authority)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(certificate + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.set_alpn_protocols(["http/1.1"])
    return context


def _certificate(name: str, key: Any, signer: Any, extension: x509.ExtensionType) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .sign(signer, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)
