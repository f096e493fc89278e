"""Converts uploaded documents to Markdown in the background.

A subprocess (`to_markdown.py`) reads the document; this module starts it, limits it and ends it.
The upload waits briefly for it, since most documents take less; longer conversions continue afterwards.
The original is never changed.
"""

import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from deerflow.config import UploadSettings
from deerflow.domain import ThreadFolders, companion_of
from deerflow.errors import ConflictError, DeerFlowError
from deerflow.files.uploads import StoredUpload, add_companion, open_upload

logger = logging.getLogger(__name__)

PROGRAM = Path(__file__).with_name("to_markdown.py")
AT_ONCE = 2
WAIT_SECONDS = 20.0
MAX_SECONDS = 120.0
MAX_CHARS = 4_000_000
_MAX_BYTES = 4 * MAX_CHARS + 1000
_REASON_BYTES = 500


class DocumentConverter:
    """Converts the documents of all threads, with limited concurrency."""

    def __init__(
        self,
        *,
        settings: Callable[[], UploadSettings],
        wait_seconds: float = WAIT_SECONDS,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        """Create the converter of one process.

        Args:
            wait_seconds: How long an upload waits for its documents.
            max_seconds: How long one document may take.
        """
        self._settings = settings
        self._wait_seconds = wait_seconds
        self._max_seconds = max_seconds
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._working: set[asyncio.Task[str | None]] = set()

    async def convert(self, folders: ThreadFolders, uploads: Sequence[StoredUpload]) -> list[StoredUpload]:
        """Return the uploads with the state of their conversion after a short wait."""
        if not self._settings().auto_convert_documents:
            return list(uploads)
        tasks = {
            upload.filename: asyncio.create_task(self._convert(folders, upload.filename))
            for upload in uploads
            if companion_of(upload.filename) is not None
        }
        for task in tasks.values():
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        if tasks:
            await asyncio.wait(tasks.values(), timeout=self._wait_seconds)
        return [_described(upload, tasks.get(upload.filename)) for upload in uploads]

    async def aclose(self) -> None:
        working = list(self._working)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    async def _convert(self, folders: ThreadFolders, filename: str) -> str | None:
        """Convert one document; return the reason on failure."""
        try:
            async with self._slots:
                markdown = await self._read(folders, filename)
            await asyncio.to_thread(add_companion, folders, filename, markdown)
        except DeerFlowError as error:
            logger.info("thread %s: an upload was not converted: %s", folders.thread_id, error)
            return str(error)
        return None

    async def _read(self, folders: ThreadFolders, filename: str) -> bytes:
        kind = PurePosixPath(filename).suffix.lower()
        with open_upload(folders, filename) as document:
            return await _converted(document, kind, self._settings().pdf_converter, self._max_seconds)


async def markdown_of(content: bytes, kind: str, pdf_converter: str) -> str:
    """Return a document as Markdown; raise `ConflictError` with the reason when it cannot be read."""
    with await asyncio.to_thread(_spooled, content) as document:
        return (await _converted(document, kind, pdf_converter, MAX_SECONDS)).decode(errors="replace")


def _spooled(content: bytes) -> BinaryIO:
    document = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    document.write(content)
    document.seek(0)
    return document


async def _converted(document: BinaryIO, kind: str, pdf_converter: str, max_seconds: float) -> bytes:
    process = await _start(document, kind, pdf_converter)
    try:
        async with asyncio.timeout(max_seconds):
            return await _answer(process)
    except TimeoutError as error:
        raise ConflictError(f"reading it took longer than {max_seconds:g} seconds") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _start(document: BinaryIO, kind: str, pdf_converter: str) -> asyncio.subprocess.Process:
    """Start the program with the document on its standard input and without our environment."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-W", "ignore", str(PROGRAM), kind, pdf_converter, str(MAX_CHARS)),
        stdin=document,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "LANG": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    )


async def _answer(process: asyncio.subprocess.Process) -> bytes:
    """Return the program's output, up to the allowed size."""
    assert process.stdout is not None
    assert process.stderr is not None
    reason, written = await asyncio.gather(
        process.stderr.read(_REASON_BYTES), _read_within(process.stdout, _MAX_BYTES)
    )
    if written is None:
        raise ConflictError("its text is longer than a document's may be")
    code = await process.wait()
    if code != 0:
        message = reason.decode(errors="replace").strip()
        raise ConflictError(
            message if code > 0 and message else "reading it took more time or memory than it may"
        )
    return written


async def _read_within(stream: asyncio.StreamReader, most: int) -> bytes | None:
    pieces: list[bytes] = []
    size = 0
    while piece := await stream.read(1 << 16):
        size += len(piece)
        if size > most:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _described(upload: StoredUpload, task: asyncio.Task[str | None] | None) -> StoredUpload:
    if task is None or task.cancelled():
        return upload
    if not task.done():
        return replace(upload, markdown_note="It is still being converted to Markdown.")
    reason = task.result()
    if reason is not None:
        return replace(upload, markdown_note=f"It was not converted to Markdown: {reason}.")
    return replace(upload, markdown=companion_of(upload.filename))
