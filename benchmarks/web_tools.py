"""Web tools: 50 pages at once against bare httpx with the same extraction, and how good the extraction is.

The bare side fetches all pages with one `httpx` client and extracts each in this process, one by one. Ours
checks addresses and robots, extracts in child processes, and stores every page as a file.
"""

import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import trafilatura
from readability import Document

from benchmarks.support.report import promise
from deerflow.config import Settings
from deerflow.context import RunContext
from deerflow.web.api import ProviderOptions
from deerflow.web.extract_page import read_html
from deerflow.web.pages import WebPage
from deerflow.web.pages import page_path as page_file
from deerflow.web.search import ProviderChain
from deerflow.web.service import WebService

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # its generated web

from support.local_web import local_web  # noqa: E402 - needs the path above
from support.loop_watch import LoopWatch  # noqa: E402
from support.sandboxes import run_context  # noqa: E402
from support.web_pages import kept_share, labelled_pages, page_path  # noqa: E402

AT_MOST_OF_BARE = 1.5
KEPT_AT_LEAST = 0.95
LOST_AT_LEAST = 0.90
LOOP_HELD_MS_AT_MOST = 50.0
PAGES = 50
LABELLED = 100
ROUNDS = 5


def main() -> int:
    return asyncio.run(_speed()) | _quality()


async def _speed() -> int:
    ours, bare, held = [], [], []
    service = WebService()
    with web_process() as url, tempfile.TemporaryDirectory() as folder:
        urls = [url + page_path(number) for number in range(PAGES)]
        web = {"allow_private_hosts": [url.removeprefix("http://")], "max_parallel": PAGES}
        settings = Settings.model_validate({"web": web})
        for number in range(ROUNDS + 1):
            async with service.session() as session:
                context = run_context(Path(folder) / str(number), web=session, settings=settings)
                mine, longest = await _fetch_all(context, urls)
            base = await _bare(urls)
            if number:  # the first round starts the processes
                ours.append(mine)
                bare.append(base)
                held.append(longest)
    await service.aclose()
    missed = promise(
        "web_fetch",
        ratio=statistics.median(mine / base for mine, base in zip(ours, bare, strict=True)),
        at_most=AT_MOST_OF_BARE,
        ours_ms=round(statistics.median(ours) * 1000, 1),
        bare_httpx_ms=round(statistics.median(bare) * 1000, 1),
        pages=PAGES,
        rounds=ROUNDS,
    )
    return missed | promise(
        "web_fetch_loop_held_ms",
        ratio=statistics.median(held) * 1000,
        at_most=LOOP_HELD_MS_AT_MOST,
        each_round=[round(each * 1000, 1) for each in held],
    )


async def _fetch_all(context: RunContext, urls: list[str]) -> tuple[float, float]:
    """Fetch all pages at once; return the time, and the longest time that the event loop was held."""
    assert context.web is not None
    chain = ProviderChain((ProviderOptions("local"),))

    async def store(page: WebPage) -> str:
        path = page_file(page.url)
        await context.sandbox.write_file(path, page.text)
        return path

    async with LoopWatch(seconds=60, clock=time.thread_time) as watch:
        started = time.perf_counter()
        await asyncio.gather(
            *(context.web.fetch(chain, url, settings=context.settings.web, store=store) for url in urls)
        )
        seconds = time.perf_counter() - started
    return seconds, watch.longest


async def _bare(urls: list[str]) -> float:
    started = time.perf_counter()
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=len(urls))) as client:
        for answer in await asyncio.gather(*(client.get(url) for url in urls)):
            read_html(answer.content, str(answer.url), "utf-8")
    return time.perf_counter() - started


def _quality() -> int:
    """Compare what three extractions keep of the main text and lose of what surrounds it."""
    extractions: dict[str, Callable[[str], str]] = {
        "ours": lambda page: str(read_html(page.encode(), "https://a.example/", "utf-8")["markdown"]),
        "trafilatura": lambda page: trafilatura.extract(page, include_links=True) or "",
        "readability": lambda page: re.sub(r"<[^>]+>", " ", str(Document(page).summary())),
    }
    figures: dict[str, float] = {}
    for name, extract in extractions.items():
        texts = [(page, extract(page.html)) for page in labelled_pages(LABELLED)]
        kept = statistics.mean(kept_share(page.main, text) for page, text in texts)
        lost = statistics.mean(1 - kept_share(page.boilerplate, text) for page, text in texts)
        figures |= {f"{name}_kept": round(kept, 3), f"{name}_lost": round(lost, 3)}
    ours = figures["ours_lost"]
    return promise("web_text_kept", ratio=figures["ours_kept"], at_least=KEPT_AT_LEAST, **figures) | promise(
        "web_boilerplate_lost", ratio=ours, at_least=LOST_AT_LEAST, pages=LABELLED
    )


@contextmanager
def web_process() -> Iterator[str]:
    """Serve the generated web from a process of its own, as the internet is."""
    command = [sys.executable, "-m", "benchmarks.web_tools", "serve"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


async def serve() -> None:
    """Print the address of the generated web, and serve it until killed."""
    async with local_web() as site:
        print(site.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()) if sys.argv[1:] == ["serve"] else main())
