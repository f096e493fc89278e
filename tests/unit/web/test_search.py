"""Searching the web: every provider over real HTTP, fallback and fan-out, rate limits, one search per run."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from langchain_core.messages import ToolMessage
from support.sandboxes import run_context
from support.search_server import KEY, DuckDuckGo, SearchServer, duckduckgo, page_url, search_server
from support.tool_calls import answer_of, run_calls, tool_call

from deerflow.config import Settings, ToolSettings
from deerflow.context import RunContext
from deerflow.errors import ConfigError
from deerflow.tools.catalog import get_available_tools, tool_problems
from deerflow.tools.web import image_search_tool, web_search_tool
from deerflow.web.results import WebResult, canonical_url, merged
from deerflow.web.search_providers import IMAGE_SEARCHES, SEARCHES
from deerflow.web.service import WebService

HTTP_SEARCHES = sorted(set(SEARCHES) - {"ddg"})
HTTP_IMAGE_SEARCHES = sorted(set(IMAGE_SEARCHES) - {"ddg"})


@pytest_asyncio.fixture
async def server() -> AsyncIterator[SearchServer]:
    async with search_server() as served:
        yield served


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[RunContext]:
    service = WebService(env=lambda: {"SERPER_API_KEY": KEY})
    async with service.session() as session:
        yield run_context(tmp_path, web=session)
    await service.aclose()


@pytest_asyncio.fixture
async def duck(tmp_path: Path) -> AsyncIterator[DuckDuckGo]:
    async with duckduckgo(tmp_path) as served:
        yield served


def entry(name: str, use: str | None = None, **keys: Any) -> ToolSettings:
    return ToolSettings(name=name, use=use, **keys)


def provider(server: SearchServer, name: str, **keys: Any) -> dict[str, Any]:
    return {"use": name, "base_url": f"{server.url}/{name}", "api_key": KEY, "trust_env": False, **keys}


def searching(server: SearchServer, *names: str, **keys: Any) -> Any:
    return web_search_tool(entry("web_search", providers=[provider(server, name) for name in names], **keys))


@pytest.mark.parametrize("name", HTTP_SEARCHES)
async def test_every_provider_returns_the_same_form(
    name: str, server: SearchServer, context: RunContext
) -> None:
    tool = searching(server, name, max_results=3)

    answer = await answer_of(tool, context, query="deer speed")

    results = json.loads(answer.text)
    assert [result["url"] for result in results] == [page_url(number) for number in range(3)]
    assert [result["title"] for result in results] == ["Deer 0", "Deer 1", "Deer 2"]
    assert results[1]["content"].startswith("About deer 1")
    assert {result["source"] for result in results} == {name}
    assert set(results[0]) <= {"title", "url", "content", "published", "score", "source"}
    assert server.asked[0][0] == name
    assert "deer speed" in server.asked[0][1].values()


@pytest.mark.parametrize("name", HTTP_IMAGE_SEARCHES)
async def test_every_provider_of_images_returns_the_same_form(
    name: str, server: SearchServer, context: RunContext
) -> None:
    tool = image_search_tool(entry("image_search", name, max_results=2, **_without_use(server, name)))

    found = json.loads((await answer_of(tool, context, query="deer")).text)

    assert (found["query"], found["total_results"], len(found["results"])) == ("deer", 2, 2)
    assert set(found["results"][0]) == {"title", "image_url", "thumbnail_url", "source_url"}
    assert found["results"][1]["image_url"] == "https://img.example/1.jpg"
    assert found["results"][1]["thumbnail_url"].startswith("https://img.example/1")


def _without_use(server: SearchServer, name: str) -> dict[str, Any]:
    return {key: value for key, value in provider(server, name).items() if key != "use"}


async def test_duckduckgo_is_asked_without_a_key(duck: DuckDuckGo, context: RunContext) -> None:
    keys = {"proxy": duck.proxy, "verify": duck.authority, "backend": "duckduckgo"}
    use = "deerflow.community.ddg_search.tools:web_search_tool"
    search = web_search_tool(entry("web_search", use, **keys))
    images = image_search_tool(
        entry("image_search", "deerflow.community.image_search.tools:image_search_tool", **keys)
    )

    found = json.loads((await answer_of(search, context, query="deer", max_results=2)).text)
    pictures = json.loads((await answer_of(images, context, query="deer", max_results=2)).text)

    assert [result["url"] for result in found] == [page_url(0), page_url(1)]
    assert found[0]["content"] == "About deer 0"
    assert pictures["results"][0] == {
        "title": "Deer 0",
        "image_url": "https://img.example/0.jpg",
        "thumbnail_url": "https://img.example/0s.jpg",
        "source_url": page_url(0),
    }
    assert duck.queries[0] == "deer"
    assert {host.partition(":")[0] for host in duck.hosts} <= {"html.duckduckgo.com", "duckduckgo.com"}


async def test_a_provider_that_fails_is_named_and_the_next_is_used(
    duck: DuckDuckGo, server: SearchServer, context: RunContext
) -> None:
    duck.is_limited = True
    limited = {"use": "ddg", "proxy": duck.proxy, "verify": duck.authority, "backend": "duckduckgo"}
    wrong_key = provider(server, "tavily", api_key="secret-wrong-key")
    good = provider(server, "brave")
    tool = web_search_tool(entry("web_search", providers=[limited, wrong_key, good]))

    answer = await answer_of(tool, context, query="deer")
    nobody = await answer_of(
        web_search_tool(entry("web_search", providers=[limited, wrong_key])), context, query="deer"
    )

    assert {result["source"] for result in json.loads(answer.text)} == {"brave"}
    ddg, tavily = answer.artifact["failures"]
    assert ddg.startswith("ddg found nothing, or limits the rate")
    assert tavily == "tavily answered 401: Unauthorized: missing or invalid API key."
    assert nobody.status == "error"
    assert "ddg found nothing" in nobody.text
    assert "tavily answered 401" in nobody.text
    assert "secret-wrong-key" not in nobody.text


async def test_providers_at_once_are_merged_and_each_page_comes_once(
    server: SearchServer, context: RunContext
) -> None:
    tool = searching(server, "tavily", "brave", "searxng", mode="parallel", max_results=6)

    results = json.loads((await answer_of(tool, context, query="deer")).text)

    assert [result["url"] for result in results] == [page_url(number) for number in range(6)]
    assert sorted(server.requests) == ["brave", "searxng", "tavily"]


async def test_the_model_gets_at_most_what_the_settings_allow(
    server: SearchServer, context: RunContext
) -> None:
    tool = searching(server, "tavily", max_results=4)

    counts = [
        len(json.loads((await answer_of(tool, context, query=f"deer {most}", max_results=most)).text))
        for most in (2, 4, 50)
    ]

    assert counts == [2, 4, 4]
    assert tool.args["max_results"]["default"] == 4
    assert searching(server, "tavily").args["max_results"]["default"] == 5


async def test_agents_of_a_run_share_a_search(server: SearchServer, context: RunContext) -> None:
    tool = searching(server, "tavily")
    same = [tool_call("web_search", number, query=f"  Deer   SPEED{' ' * number}") for number in range(5)]

    state, _ = await run_calls([tool], context, *same)
    await answer_of(searching(server, "tavily"), context, query="deer speed")

    assert server.requests["tavily"] == 1
    assert len([m for m in state["messages"] if isinstance(m, ToolMessage)]) == 5


async def test_a_result_is_searched_again_when_its_time_is_up(server: SearchServer, tmp_path: Path) -> None:
    service = WebService()
    async with service.session() as session:
        context = run_context(
            tmp_path, web=session, settings=Settings.model_validate({"web": {"cache_seconds": 0}})
        )
        for _ in range(2):
            await answer_of(searching(server, "tavily"), context, query="deer")

    assert server.requests["tavily"] == 2


async def test_a_short_rate_limit_is_waited_for_and_a_long_one_leaves_the_provider_out(
    server: SearchServer, context: RunContext
) -> None:
    server.failures["tavily"] = [(429, {"Retry-After": "0"}), (503, {"Retry-After": "0"})]
    server.failures["brave"] = [(429, {"Retry-After": "120"})]

    waited = await answer_of(searching(server, "tavily"), context, query="one")
    limited = await answer_of(searching(server, "brave", "serper"), context, query="two")
    again = await answer_of(searching(server, "brave", "serper"), context, query="three")

    assert (waited.status, server.requests["tavily"]) == ("success", 3)
    assert {result["source"] for result in json.loads(limited.text)} == {"serper"}
    assert limited.artifact["failures"] == ["brave allows no further requests for now (429)"]
    assert "brave allows no further requests for 1" in again.artifact["failures"][0]
    assert server.requests["brave"] == 1


async def test_the_key_comes_from_the_settings_or_from_its_variable(
    server: SearchServer, context: RunContext
) -> None:
    without = {"base_url": f"{server.url}/serper", "trust_env": False}
    by_variable = web_search_tool(entry("web_search", "serper", **without))
    missing = web_search_tool(entry("web_search", "exa", base_url=f"{server.url}/exa", trust_env=False))

    found = await answer_of(by_variable, context, query="deer")
    nothing = await answer_of(missing, context, query="deer")

    assert found.status == "success"
    assert nothing.text == "exa needs a key: set `api_key`, or the variable EXA_API_KEY"


async def test_a_search_can_be_cancelled_and_a_slow_provider_is_given_up(context: RunContext) -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silence, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    tool = web_search_tool(entry("web_search", "searxng", base_url=url, timeout=0.2, trust_env=False))

    answer = await answer_of(tool, context, query="deer")
    listener.close()

    assert answer.text == "searxng did not answer in 0.2 seconds"


@pytest.mark.parametrize(
    ("tool", "use"),
    [
        *[
            ("web_search", f"deerflow.community.{package}.tools:web_search_tool")
            for package in (
                *("ddg_search", "searxng", "serper", "brave", "tavily", "infoquest", "exa", "firecrawl"),
                *("groundroute", "fastcrw"),
            )
        ],
        *[
            ("web_fetch", f"deerflow.community.{package}.tools:web_fetch_tool")
            for package in (
                *("jina_ai", "browserless", "crawl4ai", "exa", "infoquest", "firecrawl", "groundroute"),
                *("fastcrw", "tavily"),
            )
        ],
        *[
            ("image_search", f"deerflow.community.{package}.tools:image_search_tool")
            for package in ("image_search", "infoquest", "serper", "brave")
        ],
        *[("web_search", name) for name in (*SEARCHES, "duckduckgo", "ddgs")],
        *[("image_search", name) for name in IMAGE_SEARCHES],
        ("web_fetch", None),
        ("web_fetch", "local"),
        ("web_fetch", "jina"),
    ],
)
def test_the_strings_and_names_of_providers_make_tools(tool: str, use: str | None) -> None:
    settings = Settings(tools=(entry(tool, use, group="web"),))

    assert list(tool_problems(settings)) == []
    assert tool in [each.name for each in get_available_tools(settings, groups=["web"])]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "names no provider: set `use` or `providers` to some of bing, brave, ddg"),
        ({"use": "gogle"}, "web_search has no provider 'gogle'; use one of bing, brave, ddg"),
        ({"providers": []}, "`providers` must be a list"),
        ({"providers": ["altavista"]}, "there is no provider 'altavista'; use some of"),
        ({"providers": [{"api_key": "x"}]}, "must be a name, or have the key `use`"),
        ({"providers": ["ddg"], "mode": "all"}, "`mode` must be fallback or parallel, not 'all'"),
        ({"providers": ["ddg"], "max_results": 0}, "`max_results` must be a number above 0, not 0"),
        ({"providers": ["ddg"], "timeout": "soon"}, "ddg: `timeout` must be a number, not 'soon'"),
    ],
)
def test_a_wrong_entry_is_said_when_the_settings_are_read(keys: dict[str, Any], said: str) -> None:
    ((_, problem),) = tool_problems(Settings(tools=(entry("web_search", **keys),)))

    assert said in problem
    with pytest.raises(ConfigError):
        web_search_tool(entry("web_search", **keys))


def test_without_an_entry_there_are_no_web_tools() -> None:
    assert {"web_search", "web_fetch", "image_search"}.isdisjoint(
        tool.name for tool in get_available_tools(Settings())
    )


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("https://www.a.example/x/", "http://a.example/x", True),
        ("https://a.example:443/x?b=2&a=1#part", "https://A.example/x?a=1&b=2", True),
        ("https://a.example/x?utm_source=n&id=3&gclid=9", "https://a.example/x?id=3", True),
        ("https://a.example/x?id=3", "https://a.example/x?id=4", False),
        ("https://a.example/X", "https://a.example/x", False),
        ("https://a.example:8443/x", "https://a.example/x", False),
    ],
)
def test_addresses_of_one_page_are_recognised(one: str, other: str, is_same: bool) -> None:
    assert (canonical_url(one) == canonical_url(other)) is is_same


def test_what_several_providers_find_comes_first_with_the_longest_excerpt() -> None:
    def result(url: str, content: str, source: str) -> WebResult:
        return WebResult(url, url, content, source)

    one = [result("https://a.example/", "short", "x"), result("https://b.example/", "b", "x")]
    other = [result("https://c.example/", "c", "y"), result("http://www.b.example", "a longer b", "y")]

    found = merged([one, other], 3)

    assert [each.url for each in found] == ["https://b.example/", "https://a.example/", "https://c.example/"]
    assert found[0].content == "a longer b"
