"""The providers of web and image search, each one function that calls the provider's public HTTP API."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any

from deerflow.config import install_hint
from deerflow.errors import WebError
from deerflow.web.api import ProviderApi
from deerflow.web.results import MAX_CONTENT_CHARS, MAX_TITLE_CHARS, ImageResult, WebResult

_TAG = re.compile(r"</?(?:b|strong|em|i|mark|span|br|p)\b[^<>]{0,200}>", re.IGNORECASE)
_BRAVE_MAX = 20


@dataclass(frozen=True, slots=True)
class ImageFilter:
    """What the model asks of the images of a search."""

    size: str | None = None
    type_image: str | None = None
    layout: str | None = None


Search = Callable[[ProviderApi, str, int], Awaitable[list[WebResult]]]
ImageSearch = Callable[[ProviderApi, str, int, ImageFilter], Awaitable[list[ImageResult]]]


async def _tavily(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    body = {
        "query": query,
        "max_results": min(count, 20),
        **_given(api, "topic", "search_depth", "time_range"),
    }
    answer = await api.post_json(api.url("https://api.tavily.com", "/search"), body, _bearer(api.key()))
    return _found(api, _items(answer, "results"), content=("content",), published=("published_date",))


async def _brave(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    params = {
        "q": query,
        "count": min(count, _BRAVE_MAX),
        **_given(api, "country", "search_lang", "freshness"),
    }
    answer = await api.get_json(
        api.url("https://api.search.brave.com", "/res/v1/web/search"),
        params=params,
        headers=_brave_headers(api),
    )
    found = _items(answer, "web", "results")
    return _found(api, found, content=("description",), published=("page_age", "age"))


async def _serper(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    body = {"q": query, "num": count, **_given(api, "gl", "hl", "tbs")}
    answer = await api.post_json(api.url("https://google.serper.dev", "/search"), body, _serper_headers(api))
    found = _items(answer, "organic")
    return _found(api, found, url=("link",), content=("snippet",), published=("date",))


async def _searxng(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    found = _items(await _ask_searxng(api, query, category=None), "results")
    return _found(api, found[:count], content=("content",), published=("publishedDate",))


async def _ask_searxng(api: ProviderApi, query: str, *, category: str | None) -> Any:
    given = _given(api, "language", "time_range", "safesearch", "engines", "categories")
    params = {"q": query, "format": "json", **given, **({"categories": category} if category else {})}
    url = api.url("", "/search", variable="SEARXNG_URL")
    return await api.get_json(url, params=params, headers={"Accept": "application/json"})


async def _exa(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    chars = int(api.provider.number("contents_max_characters", 1000))
    body = {
        "query": query,
        "numResults": count,
        "type": api.provider.text("search_type", default="auto"),
        "contents": {"text": {"maxCharacters": chars}},
    }
    headers = {"x-api-key": api.key()}
    answer = await api.post_json(api.url("https://api.exa.ai", "/search"), body, headers)
    found = _items(answer, "results")
    return _found(api, found, content=("text", "highlights", "summary"), published=("publishedDate",))


async def _jina(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    headers = {
        **_bearer(api.key()),
        "Accept": "application/json",
        "X-Respond-With": "no-content",  # titles and descriptions; the pages are read by web_fetch
    }
    body = {"q": query, "num": count, **_given(api, "gl", "hl")}
    answer = await api.post_json(api.url("https://s.jina.ai", "/"), body, headers)
    return _found(
        api, _items(answer, "data")[:count], content=("description", "content"), published=("date",)
    )


async def _firecrawl(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    key = api.key(is_needed=not api.provider.text("base_url"))
    url = api.url("https://api.firecrawl.dev", "/v2/search", variable="FIRECRAWL_API_URL")
    answer = await api.post_json(url, {"query": query, "limit": count}, _bearer(key))
    return _found(api, _firecrawl_items(answer), content=("description", "snippet", "markdown"))


async def _fastcrw(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    """Search with fastCRW, which has Firecrawl's interface at another address."""
    key = api.key(is_needed=not api.provider.text("base_url"))
    url = api.url("https://fastcrw.com/api", "/v1/search", variable="CRW_API_URL")
    answer = await api.post_json(url, {"query": query, "limit": count}, _bearer(key))
    return _found(api, _firecrawl_items(answer), content=("description", "snippet", "markdown"))


def _firecrawl_items(answer: Any) -> list[Mapping[str, Any]]:
    """Return the results of version 2, which are in `web`, or of version 1, which are the data itself."""
    data = answer.get("data") if isinstance(answer, dict) else None
    return (
        _items(data, "web") or _items(data, "results") if isinstance(data, dict) else _items(answer, "data")
    )


async def _infoquest(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    days = int(api.provider.number("search_time_range", -1))
    body = {"query": query, "format": "JSON", **({"time_range": days} if days > 0 else {})}
    url = api.url("https://search.infoquest.bytepluses.com")
    answer = await api.post_json(url, body, _bearer(api.key()))
    found = [*_infoquest_items(answer, "organic"), *_infoquest_items(answer, "top_stories", "items")]
    return _found(api, found[:count], content=("desc", "snippet"), published=("time_frame",))


def _infoquest_items(answer: Any, *names: str) -> Iterator[Mapping[str, Any]]:
    for part in _items(answer, "search_result", "results"):
        yield from _items(part, "content", "results", *names)


async def _bing(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    params = {"q": query, "count": count, **_given(api, "mkt", "freshness", "safeSearch")}
    headers = {"Ocp-Apim-Subscription-Key": api.key()}
    url = api.url("https://api.bing.microsoft.com", "/v7.0/search")
    found = _items(await api.get_json(url, params=params, headers=headers), "webPages", "value")
    return _found(api, found, title=("name",), content=("snippet",), published=("datePublished",))


async def _groundroute(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    body = {"query": query, "max_results": min(count, 50)}
    url = api.url("https://api.groundroute.ai", "/v1/search")
    answer = await api.post_json(url, body, _bearer(api.key()))
    return _found(api, _items(answer, "results"), content=("snippet", "content"), published=("published_at",))


async def _ddgs(api: ProviderApi, query: str, count: int) -> list[WebResult]:
    found = await _ask_ddgs(api, "text", query, count, {})
    return _found(api, found, url=("href",), content=("body",))


async def _ask_ddgs(
    api: ProviderApi, kind: str, query: str, count: int, more: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    api.check_limit()
    options = api.provider
    given = {name: value for name in ("region", "backend") if (value := options.text(name))}
    verify = options.options.get("verify", True)

    def search() -> list[Mapping[str, Any]]:
        from ddgs import DDGS  # noqa: PLC0415 - an extra, and it takes 10 MB

        client = DDGS(proxy=options.text("proxy") or None, timeout=int(options.seconds), verify=verify)
        safe = options.text("safesearch", default="moderate")
        return list(getattr(client, kind)(query, max_results=count, safesearch=safe, **given, **more))

    try:
        async with asyncio.timeout(options.seconds + 5):
            return await asyncio.to_thread(search)
    except ModuleNotFoundError as error:
        raise WebError(f"{api.name} needs the package ddgs: {install_hint('ddgs')}") from error
    except TimeoutError as error:
        raise WebError(f"{api.name} did not answer in {options.seconds:g} seconds") from error
    except Exception as error:  # the engines' errors have no common class but Exception
        # An engine that limits the rate answers 202 without results, which ddgs reports as "no results".
        reason = str(error) or type(error).__name__
        raise WebError(f"{api.name} found nothing, or limits the rate: {reason[:200]}") from error


async def _brave_images(api: ProviderApi, query: str, count: int, _: ImageFilter) -> list[ImageResult]:
    url = api.url("https://api.search.brave.com", "/res/v1/images/search")
    answer = await api.get_json(url, params={"q": query, "count": count}, headers=_brave_headers(api))
    return _images(
        (item.get("title"), _in(item, "properties", "url"), _in(item, "thumbnail", "src"), item.get("url"))
        for item in _items(answer, "results")
    )


async def _serper_images(api: ProviderApi, query: str, count: int, _: ImageFilter) -> list[ImageResult]:
    url = api.url("https://google.serper.dev", "/images")
    answer = await api.post_json(url, {"q": query, "num": count}, _serper_headers(api))
    names = ("title", "imageUrl", "thumbnailUrl", "link")
    return _images(tuple(item.get(name) for name in names) for item in _items(answer, "images"))


async def _searxng_images(api: ProviderApi, query: str, count: int, _: ImageFilter) -> list[ImageResult]:
    answer = await _ask_searxng(api, query, category="images")
    names = ("title", "img_src", "thumbnail_src", "url")
    return _images(tuple(item.get(name) for name in names) for item in _items(answer, "results")[:count])


async def _bing_images(api: ProviderApi, query: str, count: int, wanted: ImageFilter) -> list[ImageResult]:
    headers = {"Ocp-Apim-Subscription-Key": api.key()}
    size = {"size": wanted.size} if wanted.size else {}
    url = api.url("https://api.bing.microsoft.com", "/v7.0/images/search")
    answer = await api.get_json(url, params={"q": query, "count": count, **size}, headers=headers)
    names = ("name", "contentUrl", "thumbnailUrl", "hostPageUrl")
    return _images(tuple(item.get(name) for name in names) for item in _items(answer, "value"))


async def _firecrawl_images(api: ProviderApi, query: str, count: int, _: ImageFilter) -> list[ImageResult]:
    key = api.key(is_needed=not api.provider.text("base_url"))
    url = api.url("https://api.firecrawl.dev", "/v2/search", variable="FIRECRAWL_API_URL")
    answer = await api.post_json(url, {"query": query, "limit": count, "sources": ["images"]}, _bearer(key))
    names = ("title", "imageUrl", "imageUrl", "url")
    return _images(tuple(item.get(name) for name in names) for item in _items(answer, "data", "images"))


async def _infoquest_images(api: ProviderApi, query: str, count: int, _: ImageFilter) -> list[ImageResult]:
    body = {"query": query, "format": "JSON", "search_type": "Images"}
    size = api.provider.text("image_size")
    url = api.url("https://search.infoquest.bytepluses.com")
    more = {"image_size": size} if size in ("l", "m", "i") else {}
    answer = await api.post_json(url, {**body, **more}, _bearer(api.key()))
    found = list(_infoquest_items(answer, "images_results"))[:count]
    names = ("title", "original", "thumbnail", "link")
    return _images(tuple(item.get(name) for name in names) for item in found)


async def _ddgs_images(api: ProviderApi, query: str, count: int, wanted: ImageFilter) -> list[ImageResult]:
    asked = {"size": wanted.size, "type_image": wanted.type_image, "layout": wanted.layout}
    more = {name: value for name, value in asked.items() if value}
    found = await _ask_ddgs(api, "images", query, count, more)
    names = ("title", "image", "thumbnail", "url")
    return _images(tuple(item.get(name) for name in names) for item in found)


SEARCHES: Mapping[str, Search] = {
    "bing": _bing,
    "brave": _brave,
    "ddg": _ddgs,
    "exa": _exa,
    "fastcrw": _fastcrw,
    "firecrawl": _firecrawl,
    "groundroute": _groundroute,
    "infoquest": _infoquest,
    "jina": _jina,
    "searxng": _searxng,
    "serper": _serper,
    "tavily": _tavily,
}
"""The providers of web search by their short names."""

IMAGE_SEARCHES: Mapping[str, ImageSearch] = {
    "bing": _bing_images,
    "brave": _brave_images,
    "ddg": _ddgs_images,
    "firecrawl": _firecrawl_images,
    "infoquest": _infoquest_images,
    "searxng": _searxng_images,
    "serper": _serper_images,
}
"""The providers of image search by their short names."""


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _brave_headers(api: ProviderApi) -> dict[str, str]:
    return {
        "Accept": "application/json",
        "X-Subscription-Token": api.key(),
    }


def _serper_headers(api: ProviderApi) -> dict[str, str]:
    return {"X-API-KEY": api.key()}


def _given(api: ProviderApi, *names: str) -> dict[str, Any]:
    """Return the options that are passed on under their own names."""
    return {name: api.provider.options[name] for name in names if api.provider.options.get(name) is not None}


def _in(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _items(value: Any, *names: str) -> list[Mapping[str, Any]]:
    """Return the objects in the list at a path; an absent list is empty."""
    found = _in(value, *names)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _found(
    api: ProviderApi,
    items: Sequence[Mapping[str, Any]],
    *,
    title: tuple[str, ...] = ("title",),
    url: tuple[str, ...] = ("url",),
    content: tuple[str, ...],
    published: tuple[str, ...] = (),
) -> list[WebResult]:
    """Return the results in a list of objects, by the names of their fields; those without an address go."""
    results = []
    for item in items:
        address = _text(item, url, 4000)
        score = item.get("score")
        if address.startswith(("http://", "https://")):
            results.append(
                WebResult(
                    title=_text(item, title, MAX_TITLE_CHARS) or address,
                    url=address,
                    content=_text(item, content, MAX_CONTENT_CHARS),
                    source=api.name,
                    published=_text(item, published, 40) or None,
                    score=round(float(score), 4) if isinstance(score, int | float) else None,
                )
            )
    return results


def _text(item: Mapping[str, Any], names: tuple[str, ...], most: int) -> str:
    """Return the first of these fields that has text, without the tags that mark the words found."""
    for name in names:
        value = item.get(name)
        if isinstance(value, list):
            value = " … ".join(part for part in value if isinstance(part, str))
        if isinstance(value, str) and value.strip():
            return " ".join(unescape(_TAG.sub("", value)).split())[:most]
    return ""


def _images(found: Any) -> list[ImageResult]:
    results = []
    for title, image, thumbnail, page in found:
        if isinstance(image, str) and image.startswith(("http://", "https://")):
            words = " ".join(title.split())[:MAX_TITLE_CHARS] if isinstance(title, str) else ""
            small = thumbnail if isinstance(thumbnail, str) else ""
            results.append(ImageResult(words, image, small, page if isinstance(page, str) else ""))
    return results
