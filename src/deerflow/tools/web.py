"""`web_search`, `image_search` and `web_fetch`: tools that search the web and read its pages.

A page is not cut: the tool returns a part of it, says how to read on, and stores the whole text as a file of
the thread, which can be searched, quoted and cited.
"""

import asyncio
import base64
import json
from typing import Annotated, Any, Literal

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command
from pydantic import BaseModel, Field, create_model

from deerflow.config import ToolSettings
from deerflow.errors import SandboxError, WebError
from deerflow.tools.define import PlainText, Runtime, tool_of
from deerflow.tools.vision import MAX_IMAGE_BYTES, view_image_tool
from deerflow.web.page_providers import LOCAL, REMOTE_FETCHES
from deerflow.web.pages import WebPage, page_path, part_of
from deerflow.web.providers import configured_count, configured_mode, configured_providers
from deerflow.web.search import ProviderChain
from deerflow.web.search_providers import IMAGE_SEARCHES, SEARCHES, ImageFilter
from deerflow.web.service import WebSession

DEFAULT_RESULTS = 5
MAX_RESULTS = 20
MAX_IMAGES = 20
MAX_PART_CHARS = 10_000
_SUFFIXES = {"image/jpeg": ".jpg", "image/png": ".png", "image/gif": ".gif", "image/webp": ".webp"}
_IN_THREAD_CHARS = 200_000
"""Texts from this size on are split in a thread: finding their headings takes milliseconds."""

Query = Annotated[PlainText, Field(min_length=1, max_length=1000, description="What to search for.")]


class WebSearchArguments(BaseModel):
    """What `web_search` takes."""

    query: Query


class ImageSearchArguments(BaseModel):
    """What `image_search` takes."""

    query: Query
    size: Literal["Small", "Medium", "Large", "Wallpaper"] | None = Field(
        None, description="The images' size."
    )
    type_image: Literal["photo", "clipart", "gif", "transparent", "line"] | None = Field(
        None, description="The kind of images."
    )
    layout: Literal["Square", "Tall", "Wide"] | None = Field(None, description="The images' shape.")


class WebFetchArguments(BaseModel):
    """What `web_fetch` takes."""

    url: Annotated[PlainText, Field(min_length=1, description="The whole URL, with http:// or https://.")]
    offset: int = Field(0, ge=0, description="Where to begin, in characters; 0 is the start of the page.")
    limit: int | None = Field(
        None, ge=1, description=f"How many characters to return, at most {MAX_PART_CHARS}."
    )


def web_search_tool(entry: ToolSettings) -> BaseTool:
    """Make `web_search` with the providers of a `tools:` entry."""
    chain = ProviderChain(configured_providers(entry, SEARCHES), configured_mode(entry))
    default, most = configured_count(entry, default=DEFAULT_RESULTS, most=MAX_RESULTS)

    @tool_of(
        "web_search",
        _with_count(WebSearchArguments, default, most),
        with_artifact=True,
        is_safe_to_repeat=True,
    )
    async def web_search(*, query: str, max_results: int, runtime: Runtime) -> tuple[str, Any]:
        """Search the web. Returns titles, URLs and excerpts; read pages with web_fetch before you cite."""
        count = max(1, min(max_results, most))
        settings = runtime.context.settings.web
        results, failures = await _web(runtime).search(chain, query, count=count, settings=settings)
        if not results:
            return f"No results for {query!r}. Try other words.", {"failures": list(failures)}
        shown = [result.to_json() for result in results]
        return json.dumps(shown, ensure_ascii=False, indent=1), {"failures": list(failures)}

    return web_search


def image_search_tool(entry: ToolSettings) -> BaseTool:
    """Make `image_search` with the providers of a `tools:` entry."""
    chain = ProviderChain(configured_providers(entry, IMAGE_SEARCHES), configured_mode(entry))
    default, most = configured_count(entry, default=DEFAULT_RESULTS, most=MAX_IMAGES)

    @tool_of("image_search", _with_count(ImageSearchArguments, default, most), is_safe_to_repeat=True)
    async def image_search(
        *,
        query: str,
        size: str | None,
        type_image: str | None,
        layout: str | None,
        max_results: int,
        runtime: Runtime,
    ) -> str:
        """Search the web for images. Returns their titles and URLs, and the pages that show them."""
        count = max(1, min(max_results, most))
        wanted = ImageFilter(size, type_image, layout)
        settings = runtime.context.settings.web
        images = await _web(runtime).search_images(chain, query, wanted, count=count, settings=settings)
        shown = [image.to_json() for image in images]
        answer = {"query": query, "total_results": len(shown), "results": shown}
        return json.dumps(answer, ensure_ascii=False, indent=1)

    return image_search


def web_fetch_tool(entry: ToolSettings) -> BaseTool:
    """Make `web_fetch` with the providers of a `tools:` entry; without any, pages are fetched from here."""
    chain = ProviderChain(configured_providers(entry, {LOCAL, *REMOTE_FETCHES}, default=LOCAL))

    @tool_of("web_fetch", WebFetchArguments, with_artifact=True, is_safe_to_repeat=True)
    async def web_fetch(*, url: str, offset: int, limit: int | None, runtime: Runtime) -> Any:
        """Read a page of the web, a PDF, a text or JSON file, or an image, as Markdown.

        Fetch only URLs that the user gave or that web_search or web_fetch returned. A long page comes in
        parts: read on with the offset that the result names. Pages behind a sign-in cannot be read.
        """
        settings = runtime.context.settings.web

        async def store(page: WebPage) -> str | None:
            return await _stored(runtime, page)

        page, path = await _web(runtime).fetch(chain, url, settings=settings, store=store)
        if page.image is not None:
            return _image_result(runtime, page, path)
        size = min(limit or settings.page_chars, MAX_PART_CHARS)
        text = page.text
        if len(text) > _IN_THREAD_CHARS:
            part = await asyncio.to_thread(part_of, text, offset=offset, limit=size, path=path)
        else:
            part = part_of(text, offset=offset, limit=size, path=path)
        return part, {"url": page.url, "title": page.title, "published": page.published, "path": path}

    return web_fetch


def _web(runtime: Runtime) -> WebSession:
    session = runtime.context.web
    if session is None:
        raise WebError("The web can be used in a run only.")
    return session


def _with_count(arguments: type[BaseModel], default: int, most: int) -> type[BaseModel]:
    count: Any = (int, Field(default, description=f"How many results to return, at most {most}."))
    return create_model(arguments.__name__, __base__=arguments, __doc__=arguments.__doc__, max_results=count)


async def _stored(runtime: Runtime, page: WebPage) -> str | None:
    """Write a page to its file and return the path; None if the thread's folders cannot take it."""
    sandbox = runtime.context.sandbox
    try:
        if page.image is None:
            path = page_path(page.url)
            await sandbox.write_file(path, page.text)
        else:
            path = page_path(page.url, _SUFFIXES.get(page.mime_type or "", ".img"))
            await sandbox.write_file(path, "")
            await sandbox.update_file(path, page.image)
    except SandboxError:
        return None
    return path


def _image_result(runtime: Runtime, page: WebPage, path: str | None) -> Any:
    image = page.image or b""
    about = f"# {page.title}\n\nAn image ({page.mime_type}, {len(image)} bytes) from {page.url}."
    stored = f" It is stored in {path}." if path else ""
    shown = {"url": page.url, "title": page.title, "path": path}
    has_vision = any(tool.name == view_image_tool.name for tool in runtime.tools)  # only such models get it
    if not has_vision or len(image) > MAX_IMAGE_BYTES:
        return f"{about}{stored} This model cannot see it.", shown
    encoded = {"base64": base64.b64encode(image).decode(), "mime_type": page.mime_type}
    message = ToolMessage(
        f"{about}{stored} You see it in the next message.",
        tool_call_id=runtime.tool_call_id or "",
        name="web_fetch",
        artifact=shown,
    )
    return Command(update={"viewed_images": {path or page.url: encoded}, "messages": [message]}), shown
