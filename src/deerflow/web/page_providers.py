"""Services that fetch a page elsewhere and return its text: an alternative to fetching it from here."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from deerflow.errors import WebError
from deerflow.web.api import ProviderApi
from deerflow.web.fetch import Download
from deerflow.web.pages import WebPage

RemoteFetch = Callable[[ProviderApi, str], Awaitable[WebPage | Download]]
"""Returns a page's text, or its HTML as a download to be extracted here."""


async def _jina(api: ProviderApi, url: str) -> WebPage:
    key = api.key(is_needed=False)
    headers = {"Accept": "application/json", "X-Return-Format": "markdown", **_bearer(key)}
    answer = await api.post_json(api.url("https://r.jina.ai", "/"), {"url": url}, headers)
    data = _object(answer, "data")
    return _page(api, url, data.get("content"), data.get("title"), data.get("publishedTime"))


async def _firecrawl(api: ProviderApi, url: str) -> WebPage:
    key = api.key(is_needed=not api.provider.text("base_url"))
    base = api.url("https://api.firecrawl.dev", "/v2/scrape", variable="FIRECRAWL_API_URL")
    return await _scraped(api, base, url, key)


async def _fastcrw(api: ProviderApi, url: str) -> WebPage:
    key = api.key(is_needed=not api.provider.text("base_url"))
    return await _scraped(
        api, api.url("https://fastcrw.com/api", "/v1/scrape", variable="CRW_API_URL"), url, key
    )


async def _scraped(api: ProviderApi, address: str, url: str, key: str) -> WebPage:
    body = {"url": url, "formats": ["markdown"], "onlyMainContent": True}
    data = _object(await api.post_json(address, body, _bearer(key)), "data")
    about = _object(data, "metadata")
    return _page(api, url, data.get("markdown"), about.get("title"), about.get("publishedTime"))


async def _crawl4ai(api: ProviderApi, url: str) -> WebPage:
    wanted = api.provider.text("filter", default="fit")
    body = {"url": url, "f": wanted, "c": "0"}
    address = api.url("http://localhost:11235", "/md", variable="CRAWL4AI_URL")
    answer = await api.post_json(address, body, _bearer(api.key(is_needed=False)))
    if answer.get("success") is False:
        raise WebError(f"{api.name} could not fetch {url}: {str(answer.get('error_message') or '')[:200]}")
    return _page(api, url, answer.get("markdown"), None, None)


async def _browserless(api: ProviderApi, url: str) -> Download:
    token = api.key(is_needed=not api.provider.text("base_url"))
    address = api.url("https://production-sfo.browserless.io", "/content", variable="BROWSERLESS_URL")
    body: dict[str, Any] = {"url": url, "gotoOptions": {"waitUntil": "networkidle2"}}
    html = await api.send("POST", address, params={"token": token} if token else None, body=body)
    return Download(url, html, "text/html", "utf-8")


async def _exa(api: ProviderApi, url: str) -> WebPage:
    headers = {"x-api-key": api.key()}
    answer = await api.post_json(
        api.url("https://api.exa.ai", "/contents"), {"urls": [url], "text": True}, headers
    )
    found = _first(answer, "results")
    return _page(api, url, found.get("text"), found.get("title"), found.get("publishedDate"))


async def _tavily(api: ProviderApi, url: str) -> WebPage:
    body = {"urls": [url], "format": "markdown"}
    headers = _bearer(api.key())
    answer = await api.post_json(api.url("https://api.tavily.com", "/extract"), body, headers)
    failed = _first(answer, "failed_results")
    if failed:
        raise WebError(f"{api.name} could not fetch {url}: {str(failed.get('error') or '')[:200]}")
    found = _first(answer, "results")
    return _page(api, url, found.get("raw_content"), found.get("title"), None)


async def _infoquest(api: ProviderApi, url: str) -> Download:
    names = {"fetch_time": "fetch_time", "timeout": "timeout", "navigation_timeout": "navi_timeout"}
    times = {field: int(api.provider.number(name, -1)) for name, field in names.items()}
    body = {"url": url, "format": "HTML", **{name: value for name, value in times.items() if value > 0}}
    headers = _bearer(api.key())
    answer = await api.post_json(api.url("https://reader.infoquest.bytepluses.com"), body, headers)
    html = answer.get("reader_result") or answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(html, str) or not html.strip():
        raise WebError(f"{api.name} returned no text for {url}")
    return Download(url, html.encode(), "text/html", "utf-8")


async def _groundroute(api: ProviderApi, url: str) -> WebPage:
    body = {"query": url, "mode": "page", "max_results": 1}
    headers = _bearer(api.key())
    answer = await api.post_json(api.url("https://api.groundroute.ai", "/v1/search"), body, headers)
    found = _first(answer, "results")
    return _page(api, url, found.get("content"), found.get("title"), found.get("published_at"))


REMOTE_FETCHES: Mapping[str, RemoteFetch] = {
    "browserless": _browserless,
    "crawl4ai": _crawl4ai,
    "exa": _exa,
    "fastcrw": _fastcrw,
    "firecrawl": _firecrawl,
    "groundroute": _groundroute,
    "infoquest": _infoquest,
    "jina": _jina,
    "tavily": _tavily,
}
"""The services by their short names."""

LOCAL = "local"
"""The provider that fetches pages from this server."""


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _object(value: Any, name: str) -> Mapping[str, Any]:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _first(value: Any, name: str) -> Mapping[str, Any]:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found[0] if isinstance(found, list) and found and isinstance(found[0], Mapping) else {}


def _page(api: ProviderApi, url: str, text: Any, title: Any, published: Any) -> WebPage:
    if not isinstance(text, str) or not text.strip():
        raise WebError(f"{api.name} returned no text for {url}")
    heading = title if isinstance(title, str) and title.strip() else _heading(text) or url
    date = published[:40] if isinstance(published, str) and published else None
    return WebPage(url, " ".join(heading.split())[:300], text, date)


def _heading(text: str) -> str:
    first = text.lstrip().partition("\n")[0]
    return first.lstrip("#").strip() if first.startswith("#") else ""
