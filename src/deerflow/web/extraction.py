"""Extracts the text of pages in child processes, so that no page can hold or exhaust this process.

The processes start on first use, serve one page at a time, and end after a while without work. One that
exceeds its time is killed.
"""

import asyncio
import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deerflow.errors import WebError

PROGRAM = Path(__file__).with_name("extract_page.py")
MAX_PAGES = 200
"""After so many pages a process is replaced, which bounds what it keeps in memory."""
_MAX_ANSWER_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a page says, without navigation, advertisements and the like."""

    title: str
    markdown: str
    published: str | None = None
    author: str | None = None
    site: str | None = None
    note: str | None = None


class ExtractorPool:
    """The child processes of one application."""

    def __init__(self, *, size: int | None = None) -> None:
        self._slots = asyncio.Semaphore(size or min(4, os.cpu_count() or 2))
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._is_closed = False

    async def extract(
        self, content: bytes, *, kind: str, url: str, charset: str | None, seconds: float
    ) -> Extracted:
        """Return the text of a page; raise `WebError` if it cannot be extracted in time.

        Args:
            kind: `html`, `text` or `json`.
            charset: The encoding that the server named.
        """
        header = {"kind": kind, "url": url, "charset": charset, "size": len(content)}
        async with self._slots:
            for is_last in (False, True):
                worker = self._idle.pop() if self._idle else await self._start()
                try:
                    async with asyncio.timeout(seconds):
                        answer = await worker.ask(header, content)
                except TimeoutError as error:
                    raise WebError(f"extracting {url} took longer than {seconds:g} seconds") from error
                except (OSError, EOFError, ValueError) as error:
                    # An idle process may have ended since it was used; one that just started may not.
                    if is_last or not worker.pages:
                        raise WebError(
                            f"{url} cannot be extracted: it needs too much memory or time"
                        ) from error
                    continue
                finally:
                    self._give_back(worker)
                if "error" in answer:
                    raise WebError(f"{url} cannot be read: {answer['error']}.")
                return Extracted(**answer)
        raise AssertionError("the last round returns or raises")

    async def aclose(self) -> None:
        """End all processes."""
        self._is_closed = True
        workers = list(self._all)
        for worker in workers:
            worker.kill()
        await asyncio.gather(*(worker.process.wait() for worker in workers))

    async def _start(self) -> "_Worker":
        if self._is_closed:
            raise WebError("the application is shutting down")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-W", "ignore", str(PROGRAM)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
        )
        worker = _Worker(process)
        self._all = {each for each in self._all if each.process.returncode is None} | {worker}
        return worker

    def _give_back(self, worker: "_Worker") -> None:
        if worker.is_ready and worker.pages < MAX_PAGES and not self._is_closed:
            self._idle.append(worker)
            return
        worker.kill()


@dataclass(eq=False, slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    pages: int = 0
    is_ready: bool = True
    """False while a page is being extracted, and for good after a failure."""

    async def ask(self, header: dict[str, Any], content: bytes) -> dict[str, Any]:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        self.is_ready = False
        stdin.write(json.dumps(header).encode() + b"\n" + content)
        await stdin.drain()
        answer = json.loads(await stdout.readline())  # ValueError: the process ended
        if answer["size"] > _MAX_ANSWER_BYTES:
            raise ValueError("the answer is too large")
        text = await stdout.readexactly(answer.pop("size"))
        self.pages += 1
        self.is_ready = True
        return {"markdown": text.decode(), **answer}

    def kill(self) -> None:
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()
