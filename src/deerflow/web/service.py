"""The web for runs: one service per application, and one session per run that its agents share."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote, urlsplit
from urllib.robotparser import RobotFileParser

import httpx2

from deerflow.addresses import look_up
from deerflow.config import WebSettings
from deerflow.errors import DeerFlowError, WebError
from deerflow.web.api import ProviderApi, RateLimits
from deerflow.web.cache import SharedCalls
from deerflow.web.extraction import ExtractorPool
from deerflow.web.fetch import Download, PageFetcher
from deerflow.web.page_providers import LOCAL, REMOTE_FETCHES
from deerflow.web.pages import WebPage
from deerflow.web.policy import AddressPolicy, Resolve
from deerflow.web.results import ImageResult, WebResult, canonical_url, merged
from deerflow.web.search import Found, ProviderChain, ask_providers
from deerflow.web.search_providers import IMAGE_SEARCHES, SEARCHES, ImageFilter

ConvertDocument = Callable[[bytes, str], Awaitable[str]]
"""Converts the content of a document to Markdown, given its suffix, such as `.pdf`."""

DOCUMENTS_AT_ONCE = 2
"""Each is converted by a process that may take a gigabyte."""
_DOCUMENT_TYPES = {
    "application/pdf": ".pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
}
_TEXT_TYPES = ("text/", "application/xml", "application/javascript", "application/yaml", "application/x-yaml")
_IMAGES = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"), (b"GIF8", "image/gif"))


@dataclass(frozen=True, slots=True)
class WebSource:
    """A page that a search found or that was read, by any agent of the run."""

    url: str
    title: str
    path: str | None = None
    """The file with its text; None for a page that was found but not read."""


class WebService:
    """What all runs of a process share: child processes, limits of providers, the number of fetches."""

    def __init__(
        self,
        *,
        env: Callable[[], Mapping[str, str]] = dict,
        convert_document: ConvertDocument | None = None,
        resolve: Resolve = look_up,
    ) -> None:
        """Args: `env` returns the variables with the keys of providers that the settings do not have."""
        self._env = env
        self.limits = RateLimits()
        self.extractors = ExtractorPool()
        self.convert_document = convert_document
        self.resolve = resolve
        self.document_slots = asyncio.Semaphore(DOCUMENTS_AT_ONCE)
        self._fetching: dict[int, asyncio.Semaphore] = {}

    @property
    def env(self) -> Mapping[str, str]:
        return self._env()

    @asynccontextmanager
    async def session(self) -> AsyncIterator["WebSession"]:
        """Yield what the agents of one run share."""
        session = WebSession(self)
        try:
            yield session
        finally:
            await session.aclose()

    def fetch_slots(self, count: int) -> asyncio.Semaphore:
        """Return the limit of concurrent fetches; runs with the same setting share it."""
        return self._fetching.setdefault(count, asyncio.Semaphore(count))

    async def aclose(self) -> None:
        await self.extractors.aclose()


class WebSession:
    """Searches and pages of one run; each is requested once, whichever agent asks."""

    def __init__(self, service: WebService) -> None:
        self._service = service
        self._calls = SharedCalls()
        self._sources: dict[str, WebSource] = {}

    @property
    def sources(self) -> Sequence[WebSource]:
        """The pages that were found or read so far."""
        return list(self._sources.values())

    async def search(
        self, chain: ProviderChain, query: str, *, count: int, settings: WebSettings
    ) -> tuple[list[WebResult], tuple[str, ...]]:
        """Return the results of a search, and the reasons of the providers that failed."""

        async def ask(api: ProviderApi) -> Sequence[WebResult]:
            return await SEARCHES[api.name](api, query, count)

        found: Found[WebResult] = await self._calls.get(
            ("search", chain.key, " ".join(query.split()).casefold(), count),
            partial(ask_providers, chain, ask, limits=self._service.limits, env=self._service.env),
            seconds=settings.cache_seconds,
        )
        results = merged(found.results, count)
        for result in results:
            self._sources.setdefault(canonical_url(result.url), WebSource(result.url, result.title))
        return results, found.failures

    async def search_images(
        self, chain: ProviderChain, query: str, wanted: ImageFilter, *, count: int, settings: WebSettings
    ) -> list[ImageResult]:
        """Return the images that a search finds, each once."""

        async def ask(api: ProviderApi) -> Sequence[ImageResult]:
            return await IMAGE_SEARCHES[api.name](api, query, count, wanted)

        found: Found[ImageResult] = await self._calls.get(
            ("images", chain.key, " ".join(query.split()).casefold(), count, wanted),
            partial(ask_providers, chain, ask, limits=self._service.limits, env=self._service.env),
            seconds=settings.cache_seconds,
        )
        images = {image.image_url: image for results in found.results for image in results}
        return list(images.values())[:count]

    async def fetch(
        self,
        chain: ProviderChain,
        url: str,
        *,
        settings: WebSettings,
        store: Callable[[WebPage], Awaitable[str | None]],
    ) -> tuple[WebPage, str | None]:
        """Return a page and the path of the file that keeps it; each page is fetched once per run.

        Args:
            store: Writes a new page to a file and returns its path.
        """
        policy = AddressPolicy.from_settings(settings, resolve=self._service.resolve)
        checked = policy.check_url(url)

        key = ("page", chain.key, str(checked))

        async def read() -> tuple[WebPage, str | None]:
            async with self._service.fetch_slots(settings.max_parallel):
                page = await self._read(chain, checked, settings, policy)
            path = await store(page)
            self._note(url, page, path)
            self._calls.share(key, ("page", chain.key, page.url))  # where redirects led
            return page, path

        return await self._calls.get(key, read, seconds=settings.cache_seconds)

    async def aclose(self) -> None:
        await self._calls.aclose()

    def _note(self, url: str, page: WebPage, path: str | None) -> None:
        for address in (url, page.url):
            self._sources[canonical_url(address)] = WebSource(address, page.title, path)

    async def _read(
        self, chain: ProviderChain, url: httpx2.URL, settings: WebSettings, policy: AddressPolicy
    ) -> WebPage:
        async def ask(api: ProviderApi) -> Sequence[WebPage]:
            found = await self._fetched(api, url, settings, policy)
            return [found if isinstance(found, WebPage) else await self._extracted(found, settings)]

        if chain.providers[0].options.get("allow_private_addresses") is True:
            policy = AddressPolicy(resolve=policy.resolve, allows_all=True)
        found = await ask_providers(chain, ask, limits=self._service.limits, env=self._service.env)
        return found.results[0][0]

    async def _fetched(
        self, api: ProviderApi, url: httpx2.URL, settings: WebSettings, policy: AddressPolicy
    ) -> WebPage | Download:
        if api.name != LOCAL:
            await policy.check_destination(url)
            return await REMOTE_FETCHES[api.name](api, str(url))
        fetcher = PageFetcher(settings, policy, robots=partial(self._robots, settings, policy))
        return await fetcher.fetch(str(url))

    async def _robots(
        self, settings: WebSettings, policy: AddressPolicy, url: httpx2.URL
    ) -> RobotFileParser | None:
        origin = ("robots", url.scheme, url.netloc)
        fetcher = PageFetcher(settings, policy)
        seconds = max(settings.cache_seconds, 60)
        return await self._calls.get(origin, partial(fetcher.fetch_robots, url), seconds=seconds)

    async def _extracted(self, download: Download, settings: WebSettings) -> WebPage:
        kind = content_kind(download)
        if kind.startswith("image/"):
            name = unquote(urlsplit(download.url).path.rpartition("/")[2]) or "image"
            return WebPage(download.url, name, "", image=download.content, mime_type=kind)
        if kind.startswith("."):
            return await self._document(download, kind)
        found = await self._service.extractors.extract(
            download.content,
            kind=kind,
            url=download.url,
            charset=download.charset,
            seconds=settings.extract_seconds,
        )
        return WebPage(
            download.url,
            found.title,
            found.markdown,
            found.published,
            found.author,
            found.site,
            note=found.note,
        )

    async def _document(self, download: Download, suffix: str) -> WebPage:
        if self._service.convert_document is None:
            raise WebError(f"{download.url} is a {suffix} file, which cannot be read here.")
        try:
            async with self._service.document_slots:
                text = await self._service.convert_document(download.content, suffix)
        except DeerFlowError as error:
            raise WebError(f"{download.url} cannot be read: {error}.") from error
        name = unquote(urlsplit(download.url).path.rpartition("/")[2]) or "document"
        return WebPage(download.url, name, text)


def content_kind(download: Download) -> str:
    """Return how a download is read: `html`, `json`, `text`, a document's suffix or an image's type.

    What the content is counts more than what the server says, except for text.
    """
    content, said = download.content, download.media_type
    start = content[:1024].lstrip()
    if content.startswith(b"%PDF-"):
        return ".pdf"
    for magic, kind in _IMAGES:
        if content.startswith(magic):
            return kind
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    if content.startswith(b"PK\x03\x04") and said in _DOCUMENT_TYPES:
        return _DOCUMENT_TYPES[said]
    if said in ("text/html", "application/xhtml+xml") or start[:15].lower().startswith(
        (b"<!doctype html", b"<html")
    ):
        return "html"
    if said == "application/json" or said.endswith("+json"):
        return "json"
    if said.startswith(_TEXT_TYPES) or said.endswith("+xml") or (not said and b"\0" not in content[:4096]):
        return "json" if not said and start[:1] in (b"{", b"[") and _is_json(content) else "text"
    shown = said or "unknown type"
    raise WebError(
        f"{download.url} is a file of type {shown} with {len(content)} bytes; pages, text, JSON, PDF, office "
        "documents and images can be read."
    )


def _is_json(content: bytes) -> bool:
    if len(content) > 100_000:
        return False  # parsing it here would take too long
    try:
        json.loads(content)
    except ValueError:
        return False
    return True
