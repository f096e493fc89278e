"""Reading pages: extraction, parts, files of the thread, one fetch per run, alternatives, limits."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from langchain_core.messages import ToolMessage
from support.local_web import CHARSETS, PIXEL, SENTENCES, LocalWeb, local_web
from support.loop_watch import LoopWatch
from support.sandboxes import FolderSandbox, run_context
from support.search_server import KEY, PAGE_TEXT, search_server
from support.tool_calls import answer_of, run_calls, tool_call
from support.web_pages import kept_share, labelled_page, labelled_pages, page_path

from deerflow.agents.state import ThreadState
from deerflow.config import Settings, ToolSettings
from deerflow.context import RunContext
from deerflow.files.upload_conversion import markdown_of
from deerflow.tools.vision import view_image_tool
from deerflow.tools.web import web_fetch_tool
from deerflow.web.extraction import ExtractorPool
from deerflow.web.page_providers import REMOTE_FETCHES
from deerflow.web.pages import outline_of, part_of
from deerflow.web.service import WebService

LOCAL = web_fetch_tool(ToolSettings(name="web_fetch"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[LocalWeb]:
    async with local_web() as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service() -> AsyncIterator[WebService]:
    service = WebService(convert_document=lambda content, kind: markdown_of(content, kind, "auto"))
    yield service
    await service.aclose()


pytestmark = pytest.mark.asyncio(loop_scope="module")


def settings_for(site: LocalWeb, **web: Any) -> Settings:
    host = site.url.removeprefix("http://")
    return Settings.model_validate({"web": {"allow_private_hosts": [host], **web}})


@pytest_asyncio.fixture(loop_scope="module")
async def context(service: WebService, site: LocalWeb, tmp_path: Path) -> AsyncIterator[RunContext]:
    async with service.session() as session:
        yield run_context(tmp_path, web=session, settings=settings_for(site))


async def fetched(context: RunContext, url: str, **args: Any) -> ToolMessage:
    return await answer_of(LOCAL, context, url=url, **args)


def stored(context: RunContext, answer: ToolMessage) -> str:
    sandbox = context.sandbox
    assert isinstance(sandbox, FolderSandbox)
    path = answer.artifact["path"].removeprefix("/mnt/user-data/")
    return (sandbox.root / path).read_text()


async def test_a_page_is_readable_markdown_with_title_origin_and_date(
    context: RunContext, site: LocalWeb
) -> None:
    page = labelled_page(0, 160)

    answer = await fetched(context, site.url + page.path)

    text = stored(context, answer)
    assert answer.text.startswith(f"# {page.title}\n\nSource: {site.url}{page.path}\nPublished: 2026-01-01\n")
    assert kept_share(page.main, text) > 0.95
    assert kept_share(page.boilerplate, text) < 0.1
    assert text.count(page.title) == 1
    assert answer.artifact["title"] == page.title
    assert "DeerFlow" in "".join(site.agents)


async def test_links_tables_code_and_lists_are_kept(context: RunContext, site: LocalWeb) -> None:
    texts = [stored(context, await fetched(context, site.url + page_path(number))) for number in range(14)]
    whole = "\n".join(texts)

    assert re.search(r"^\| Name of part \d+ \| Measured value \|", whole, re.MULTILINE)
    assert re.search(r"^    total = value \* \d\n\n    return total$", whole, re.MULTILINE)
    assert re.search(r"^- The \w+", whole, re.MULTILINE)
    assert re.search(r"^1\. ", whole, re.MULTILINE)
    assert re.search(r"^> ", whole, re.MULTILINE)
    assert re.search(r"^## How it began \d+$", whole, re.MULTILINE)


async def test_a_hundred_labelled_pages_keep_their_text_and_lose_the_rest(
    service: WebService,
) -> None:
    kept, lost = [], []
    for page in labelled_pages(100):
        found = await service.extractors.extract(
            page.html.encode(), kind="html", url="https://a.example/", charset="utf-8", seconds=20
        )
        kept.append(kept_share(page.main, found.markdown))
        lost.append(1 - kept_share(page.boilerplate, found.markdown))

    assert sum(kept) / 100 >= 0.95
    assert sum(lost) / 100 >= 0.90
    assert min(kept) > 0.8


async def test_a_long_page_comes_in_parts_without_loss(context: RunContext, site: LocalWeb) -> None:
    url = site.url + page_path(3)
    before = site.hits[page_path(3)]
    first = await fetched(context, url, limit=1000)
    parts, offset = [], 0
    while True:
        answer = await fetched(context, url, offset=offset, limit=1000)
        body, _, note = answer.text.rpartition("\n\n[Characters ")
        parts.append(body)
        found = re.search(r"Read on with offset=(\d+)", note)
        if found is None:
            break
        offset = int(found[1])

    whole = stored(context, first)
    assert "".join("".join(parts).split()) == "".join(whole.split())
    assert len(parts) > 3
    assert "Outline (offset and heading):\n0: " in first.text
    place = int(re.search(r"^(\d+):   The costs 3$", first.text, re.MULTILINE)[1])  # type: ignore[index]
    assert whole[place:].startswith("## The costs 3")
    assert "use grep or read_file on it" in first.text
    assert site.hits[page_path(3)] == before + 1
    beyond = await fetched(context, url, offset=10**9)
    assert (beyond.status, "offset must be from 0 to" in beyond.text) == ("error", True)


async def test_agents_of_a_run_fetch_a_page_once(context: RunContext, site: LocalWeb) -> None:
    path = page_path(20)
    calls = [tool_call("web_fetch", number, url=f"{site.url}{path}#part{number}") for number in range(8)]

    state, _ = await run_calls([LOCAL], context, *calls)

    assert site.hits[path] == 1
    assert len({message.text for message in state["messages"] if isinstance(message, ToolMessage)}) == 1
    assert context.web is not None
    assert [source.path is not None for source in context.web.sources] == [True]


async def test_a_page_behind_a_redirect_is_not_fetched_again(context: RunContext, site: LocalWeb) -> None:
    before = site.hits[page_path(13)]

    moved = await fetched(context, f"{site.url}/moved/13")
    direct = await fetched(context, site.url + page_path(13))

    assert direct.text == moved.text
    assert site.hits[page_path(13)] == before + 1


@pytest.mark.parametrize("number", range(len(CHARSETS) * 2))
async def test_pages_of_any_charset_are_decoded(number: int, context: RunContext, site: LocalWeb) -> None:
    language = CHARSETS[number % len(CHARSETS)][1]

    answer = await fetched(context, f"{site.url}/charset/{number}.html")

    assert SENTENCES[language] in answer.text


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/reports/1.pdf", "Report 1 on rivers"),
        ("/reports/2.docx", "Word report 2"),
        ("/data/3.json", '"n": 3'),
        ("/notes/4.txt", "# Notes 4\n\nSource"),
        ("/gzip/5.html", "## How it began 5"),
        ("/moved/7", "## How it began 7"),
        ("/moved/6", "## How it began 6"),
        ("/chain/0", "## How it began 5"),
        ("/cookie/8", "## How it began 8"),
        ("/slow/9", "## How it began 9"),
        ("/flaky", "## How it began 1"),
        ("/broken/cut", "# "),
        ("/broken/deep", "# "),
        ("/broken/tags", "words words"),
        ("/broken/challenge", "Note: the site probably showed a check for robots"),
    ],
)
async def test_many_kinds_of_pages_are_read(
    path: str, shown: str, context: RunContext, site: LocalWeb
) -> None:
    answer = await fetched(context, site.url + path)

    assert answer.status == "success", answer.text
    assert shown in answer.text
    assert answer.text.startswith("# ")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/nothing-here", "answered 404 Not Found."),
        ("/failing", "answered 500 Internal Server Error."),
        ("/loop", "redirects more than 10 times (web.max_redirects)"),
        ("/private/page", "the site's robots.txt forbids it (web.respect_robots)"),
        ("/broken/empty", "there is no HTML in it"),
        ("/broken/type", "is a file of type application/octet-stream with 3 bytes"),
        ("/broken/gzip", "is compressed wrongly"),
        ("/broken/brotli", "is compressed with 'br', which was not asked for"),
        ("/broken/huge", "has more than 10485760 bytes (web.max_bytes)"),
        ("/broken/bomb", "has more than 10485760 bytes (web.max_bytes)"),
        ("/endless", "has more than 10485760 bytes (web.max_bytes)"),
        ("/away/file", "URLs must begin with http:// or https://"),
        ("/away/metadata", "169.254.169.254 is a private or reserved address (link-local)"),
        ("/away/private", "10.0.0.1 is a private or reserved address (private)"),
        ("/away/secret", "URLs with a user name or password are not fetched"),
        ("/away/broken", "cannot be fetched: the server broke off"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_the_reason(
    path: str, said: str, context: RunContext, site: LocalWeb
) -> None:
    async with LoopWatch():
        answer = await fetched(context, site.url + path)

    assert answer.status == "error"
    assert said in answer.text


async def test_a_server_that_drips_is_given_up_in_time(
    service: WebService, site: LocalWeb, tmp_path: Path
) -> None:
    async with service.session() as session:
        settings = settings_for(site, timeout_seconds=0.5)
        context = run_context(tmp_path, web=session, settings=settings)
        async with asyncio.timeout(10):
            answer = await fetched(context, site.url + "/drip")

    assert "took longer than 0.5 seconds (web.timeout_seconds)" in answer.text


async def test_robots_are_asked_once_and_can_be_ignored(
    service: WebService, site: LocalWeb, tmp_path: Path
) -> None:
    before = site.hits["/robots.txt"]
    async with service.session() as session:
        context = run_context(tmp_path, web=session, settings=settings_for(site))
        for number in range(3):
            await fetched(context, site.url + page_path(number))
        asked = site.hits["/robots.txt"] - before
        unbound = run_context(tmp_path, web=session, settings=settings_for(site, respect_robots=False))
        ignored = await fetched(unbound, site.url + "/private/page")

    assert asked == 1
    assert ignored.status == "success"


async def test_an_image_is_shown_to_a_model_with_vision_only(context: RunContext, site: LocalWeb) -> None:
    call = tool_call("web_fetch", url=f"{site.url}/images/1.png")

    seen, _ = await run_calls([LOCAL, view_image_tool], context, call, state_schema=ThreadState)
    blind, _ = await run_calls([LOCAL], context, call, state_schema=ThreadState)

    ((path, image),) = seen["viewed_images"].items()
    sandbox = context.sandbox
    assert isinstance(sandbox, FolderSandbox)
    assert (sandbox.root / path.removeprefix("/mnt/user-data/")).read_bytes() == PIXEL
    assert image["mime_type"] == "image/png"
    assert not blind.get("viewed_images")
    assert "This model cannot see it." in blind["messages"][2].text


@pytest.mark.parametrize("name", sorted(REMOTE_FETCHES))
async def test_every_service_that_fetches_elsewhere_returns_the_page(
    name: str, context: RunContext, site: LocalWeb
) -> None:
    async with search_server() as server:
        base = f"{server.url}/{name}" + ("-reader" if name in ("jina", "infoquest") else "")
        keys = {"base_url": base, "api_key": KEY, "trust_env": False}
        tool = web_fetch_tool(ToolSettings(name="web_fetch", use=name, **keys))

        answer = await answer_of(tool, context, url=f"{site.url}/{name}")
        private = await answer_of(tool, context, url="http://10.1.2.3/")

    assert answer.text.startswith("# A page\n\nSource: ")
    assert PAGE_TEXT.partition("\n\n")[2] in stored(context, answer)
    assert "10.1.2.3 may not be fetched: 10.1.2.3 is a private or reserved address" in private.text
    assert len(server.asked) == 1


async def test_the_next_service_is_used_when_one_fails(context: RunContext, site: LocalWeb) -> None:
    keys: dict[str, Any] = {
        "providers": [{"use": "jina", "base_url": "http://127.0.0.1:9", "timeout": 3}, "local"]
    }
    tool = web_fetch_tool(ToolSettings(name="web_fetch", trust_env=False, **keys))

    answer = await answer_of(tool, context, url=site.url + page_path(11))

    assert "How it began 11" in stored(context, answer)


async def test_the_loop_is_free_while_large_pages_are_extracted(context: RunContext, site: LocalWeb) -> None:
    rows = "".join(f"<tr><td>{n}</td><td>row number {n} of a long table</td></tr>" for n in range(20_000))
    page = f"<html><body><main><h1>Big</h1><table>{rows}</table></main></body></html>".encode()
    pool = ExtractorPool(size=1)

    async with LoopWatch():
        found = await pool.extract(page, kind="html", url="https://a.example/", charset=None, seconds=60)
        part_of(found.markdown, offset=0, limit=1000, path=None)
    await pool.aclose()

    assert "row number 19999 of a long table" in found.markdown


async def test_a_page_that_takes_too_long_costs_only_itself(service: WebService) -> None:
    pool = ExtractorPool(size=1)
    slow = b"<html><body>" + b"<p>" + b"<b>" * 200_000 + b"x"

    with pytest.raises(Exception, match=r"took longer than 0\.05 seconds"):
        await pool.extract(slow * 3, kind="html", url="u", charset=None, seconds=0.05)
    found = await pool.extract(b"# Fine", kind="text", url="http://a/b.txt", charset=None, seconds=20)
    await pool.aclose()

    assert (found.title, found.markdown) == ("Fine", "# Fine")


async def test_a_worker_that_died_is_replaced() -> None:
    pool = ExtractorPool(size=1)
    await pool.extract(b"one", kind="text", url="u", charset=None, seconds=20)
    (worker,) = pool._idle
    worker.process.kill()
    await worker.process.wait()

    again = await pool.extract(b"two", kind="text", url="u", charset=None, seconds=20)
    await pool.aclose()

    assert again.markdown == "two"


async def test_the_number_of_fetches_at_once_is_limited(
    service: WebService, site: LocalWeb, tmp_path: Path
) -> None:
    site.most_at_once = 0
    async with service.session() as session:
        context = run_context(tmp_path, web=session, settings=settings_for(site, max_parallel=2))
        calls = [tool_call("web_fetch", number, url=f"{site.url}/slow/{number}") for number in range(8)]
        await run_calls([LOCAL], context, *calls)

    assert site.most_at_once <= 2


async def test_an_outline_leaves_out_code() -> None:
    text = "# One\n\n```\n# no heading\n```\n\n## Two\n"

    assert outline_of(text) == ["0: One", f"{text.index('## Two')}:   Two"]


async def test_the_web_has_more_than_three_hundred_pages(site: LocalWeb) -> None:
    assert len(site.paths) >= 300
    assert json.dumps(site.paths).count(".html") >= 200
