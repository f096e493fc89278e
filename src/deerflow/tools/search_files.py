"""`search_files`: find the passages of a thread's files that answer a question, by words and by meaning."""

import asyncio
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pydantic import Field

from deerflow.domain import companion_of
from deerflow.errors import ConflictError, SandboxError
from deerflow.files.upload_conversion import markdown_of
from deerflow.retrieval import Passage, default_embeddings, passages, rank
from deerflow.sandbox import Sandbox
from deerflow.tools.define import Described, PlainText, Runtime, VirtualPath, refuse, tool_of

MAX_RESULTS = 50
MAX_FILES = 3000
MAX_FILE_BYTES = 2_000_000
MAX_TOTAL_BYTES = 30_000_000
MAX_DOCUMENT_BYTES = 30_000_000
MAX_DOCUMENTS = 20
MAX_ROWS = 20_000
MAX_CHARS = 11_000
"""Of the answer: below the size from which results are replaced by a preview."""
_READ_AT_ONCE = 16
_NAMED_FILES = 12
_PAGE = re.compile(r"Page (\d+)")
_TABLES = {".csv": ",", ".tsv": "\t"}


class SearchFilesArguments(Described):
    """What `search_files` takes."""

    query: PlainText = Field(min_length=1, max_length=4000, description="The question, in plain words.")
    paths: list[VirtualPath] = Field(
        min_length=1, max_length=200, description="The files and folders to search, as absolute paths."
    )
    max_results: int = Field(10, description=f"How many passages to return, at most {MAX_RESULTS}.")


@tool_of("search_files", SearchFilesArguments, is_safe_to_repeat=True)
async def search_files_tool(
    *, description: str, query: str, paths: list[str], max_results: int, runtime: Runtime
) -> str:
    """Find the passages in files that answer a question, by words and by meaning, in any language.

    Reads text, code, tables, PDF and Office files, whole folders too (what .gitignore names is left out). Use
    it when you do not know the exact words; use grep when you do. Passages come best first, with their lines.
    """
    context = runtime.context
    search = _Search(context.sandbox, pdf_converter=context.settings.uploads.pdf_converter)
    await search.read(paths)
    if not search.texts and not search.omitted:
        raise refuse(f"There are no files in {', '.join(paths[:_NAMED_FILES])}.")
    limit = max(1, min(max_results, MAX_RESULTS))
    return await asyncio.to_thread(found_passages, query, search.texts, search.omitted, limit)


def found_passages(
    query: str, texts: Sequence[tuple[str, str]], omitted: Sequence[tuple[str, str]], limit: int
) -> str:
    """Return the passages of `texts` (path and content) that match best, and which files were left out."""
    parts = [(path, passage, context) for path, text in texts for passage, context in _passages(path, text)]
    searchable = [f"{PurePosixPath(path).stem} {context}" for path, _, context in parts]
    hits = rank(query, searchable, limit=limit, embeddings=default_embeddings())
    names = [f"- {path}" for path, _ in texts] if len(texts) <= _NAMED_FILES else []
    lines = [
        "\n".join(
            [f"Searched {len(texts)} file{'' if len(texts) == 1 else 's'}{':' if names else '.'}", *names]
        )
    ]
    size = 0
    for hit in hits:
        path, passage, _ = parts[hit.index]
        block = _block(path, passage, hit.score)
        size += len(block)
        if size > MAX_CHARS:
            break
        lines.append(block)
    if not hits:
        lines.append("Nothing in them matches the question.")
    lines += [f"Not searched: {path}: {reason}" for path, reason in omitted[:_NAMED_FILES]]
    if len(omitted) > _NAMED_FILES:
        lines.append(f"Not searched: {len(omitted) - _NAMED_FILES} more files")
    return "\n\n".join(lines)


def _block(path: str, passage: Passage, score: float) -> str:
    page = next((found[1] for title in passage.headings if (found := _PAGE.fullmatch(title))), None)
    where = f"page {page}" if page else f"lines {passage.first_line}-{passage.last_line}"
    above = f"; {' > '.join(passage.headings)}" if passage.headings else ""
    numbered = [
        f"{number}: {line}" for number, line in enumerate(passage.text.split("\n"), passage.first_line)
    ]
    return "\n".join([f"## {path} ({where}; score {score:.2f}{above})", *numbered])


def _passages(path: str, text: str) -> Iterator[tuple[Passage, str]]:
    """Yield the passages of a file with what is compared; tables row by row with their column names."""
    separator = _TABLES.get(PurePosixPath(path).suffix.lower())
    if separator is None:
        for passage in passages(text):
            yield passage, passage.searchable
        return
    rows = list(csv.reader(io.StringIO(text[:MAX_FILE_BYTES]), delimiter=separator))[:MAX_ROWS]
    lines = text.split("\n")
    names = rows[0] if rows else []
    for number, (row, line) in enumerate(zip(rows[1:], lines[1:], strict=False), start=2):
        named = "; ".join(f"{name}: {value}" for name, value in zip(names, row, strict=False))
        yield Passage(line.rstrip("\r"), number, number, (", ".join(names),)), named


@dataclass
class _Search:
    """Reads the files of one search, within limits."""

    sandbox: Sandbox
    pdf_converter: str
    texts: list[tuple[str, str]] = field(default_factory=list)
    omitted: list[tuple[str, str]] = field(default_factory=list)
    _bytes: int = 0
    _documents: int = 0

    async def read(self, paths: Sequence[str]) -> None:
        files = list(dict.fromkeys([file for path in paths for file in await self._files(path)]))
        present = set(files)
        wanted = [file for file in files if companion_of(file) not in present]  # else its text is there
        self.omitted += [(file, f"only {MAX_FILES} files are searched") for file in wanted[MAX_FILES:]]
        slots = asyncio.Semaphore(_READ_AT_ONCE)

        async def one(file: str) -> str | None:
            async with slots:
                try:
                    return await self._text(file)
                except (SandboxError, ConflictError) as error:
                    self.omitted.append((file, " ".join(str(error).split())[:300]))
                    return None

        found = await asyncio.gather(*(one(file) for file in wanted[:MAX_FILES]))
        self.texts += [(file, text) for file, text in zip(wanted, found, strict=False) if text is not None]

    async def _files(self, path: str) -> list[str]:
        """Return the files below a folder without those that its `.gitignore` names; a file is itself."""
        try:
            found, _ = await self.sandbox.glob(path, "**/*", max_results=MAX_FILES + 1)
        except SandboxError:
            return [path]
        if not found:
            return [] if await self._is_folder(path) else [path]
        try:
            rules = await self.sandbox.read_file(f"{path.rstrip('/')}/.gitignore")
        except SandboxError:
            return found
        from pathspec import GitIgnoreSpec  # noqa: PLC0415 - takes 15 ms to import

        ignored = GitIgnoreSpec.from_lines(rules.splitlines()[:2000])
        return [file for file in found if not ignored.match_file(file.removeprefix(f"{path.rstrip('/')}/"))]

    async def _is_folder(self, path: str) -> bool:
        try:
            await self.sandbox.list_dir(path, max_depth=1)
        except SandboxError:
            return False
        return True

    async def _text(self, path: str) -> str:
        """Return a file's text; raise an error that says why there is none."""
        is_document = companion_of(path) is not None
        most = MAX_DOCUMENT_BYTES if is_document else MAX_FILE_BYTES
        content = await self.sandbox.download_file(path, max_bytes=most)
        if is_document:
            self._documents += 1
            if self._documents > MAX_DOCUMENTS:
                raise refuse(f"{MAX_DOCUMENTS} documents were converted before it")
            return await markdown_of(content, PurePosixPath(path).suffix.lower(), self.pdf_converter)
        self._bytes += len(content)
        if self._bytes > MAX_TOTAL_BYTES:
            raise refuse(f"{MAX_TOTAL_BYTES:,} bytes were read before it")
        if b"\0" in content:
            raise refuse("it is not text")
        return content.decode(errors="replace")
