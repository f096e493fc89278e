"""Decides what to search and read next, and puts the pages of each file together again."""

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deerflow.models.offline.conversation import Conversation, OfflineCall, Step, label
from deerflow.models.offline.findings import Source
from deerflow.models.offline.phrases import phrases
from deerflow.models.offline.results import Hit, Page, read_hits, read_page
from deerflow.models.offline.sentences import NumberedLine
from deerflow.models.offline.words import Language

MAX_READS = 40
"""Pages that one agent reads; beyond it the answer says what was left."""
READS_AT_ONCE = 8
FIRST_PAGE_LINES = 400
PAGE_CHARS = 36_000
"""What a page should hold: below the 50,000 characters after which `read_file` cuts."""
MAX_GREPS = 6
MAX_HITS = 300

_BEHIND_END = re.compile(r"(?:(?:has|of) (\d+) lines)|behind|beyond|past the end|out of range", re.I)


@dataclass(slots=True)
class FileText:
    """What is known of one file so far."""

    path: str
    pages: list[Page] = field(default_factory=list)
    reads: int = 0
    total: int | None = None
    is_done: bool = False
    error: str = ""

    def add(self, step: Step) -> None:
        """Take in one result of `read_file`."""
        self.reads += 1
        start, end = _number(step, "start_line", 1), _number(step, "end_line", 10**9)
        if step.failed:
            self._stop(step.result, start)
            return
        page = read_page(step.result, start=start, end=end)
        self.pages.append(page)
        self.total = page.total if page.total is not None else self.total
        self.is_done = (
            self.is_done or page.is_last or (self.total is not None and self.next_line() > self.total)
        )

    def next_line(self) -> int:
        """Return the first line that no page holds."""
        expected = 1
        for page in sorted(self.pages, key=lambda page: page.start):
            if page.start <= expected:
                expected = max(expected, page.start + len(page.lines))
        return expected

    def lines(self) -> list[NumberedLine]:
        """Return the lines read, in order, each once."""
        numbered: dict[int, str] = {}
        for page in self.pages:
            for number, text in enumerate(page.lines, start=page.start):
                numbered.setdefault(number, text)
        return sorted(numbered.items())

    def _stop(self, reason: str, start: int) -> None:
        is_known_end = self.is_done or _BEHIND_END.search(reason)
        self.is_done = True
        if start == 1 or not is_known_end:
            self.error = self.error or " ".join(reason.split())[:300]


def texts_of(paths: Iterable[str], conversation: Conversation) -> list[FileText]:
    """Return what this turn's reads brought, file by file."""
    texts = {path: FileText(path) for path in paths}
    for step in conversation.steps("read_file"):
        if text := texts.get(step.argument("path")):
            text.add(step)
    return list(texts.values())


def next_reads(
    paths: Sequence[str], words: Sequence[str], conversation: Conversation, language: Language
) -> list[OfflineCall]:
    """Return the calls to make next: one round of `grep`, then page after page; none when all is read."""
    if words and "grep" in conversation.tools and not conversation.steps("grep"):
        return _greps(paths, words, language)
    if "read_file" not in conversation.tools:
        return []
    calls: list[OfflineCall] = []
    texts = texts_of(paths, conversation)
    room = MAX_READS - len(conversation.steps("read_file"))
    # Every file gets its first page before any gets its second.
    for text in sorted((text for text in texts if not text.is_done), key=lambda text: text.reads > 0):
        at_once = 1 if not text.reads else READS_AT_ONCE // 2
        calls += _pages(text, min(at_once, READS_AT_ONCE - len(calls), room - len(calls)), language)
    return calls


def hits_of(conversation: Conversation) -> list[Hit]:
    """Return the lines that this turn's searches found."""
    steps = [step for step in conversation.steps("grep") if not step.failed]
    return [hit for step in steps for hit in read_hits(step.result, path=step.argument("path"))]


def aligned(text: FileText, hits: Iterable[Hit]) -> list[NumberedLine]:
    """Return a file's lines, numbered as `grep` numbers them should the count of a page be off."""
    lines = text.lines()
    shown = dict(lines)
    known = [hit for hit in hits if hit.path == text.path and hit.text]

    def agreeing(shift: int) -> int:
        return sum(hit.text in shown.get(hit.line - shift, "") for hit in known)

    shift = max((0, 1, -1, 2, -2), key=agreeing)
    numbered = {number + shift: content for number, content in lines if number + shift > 0}
    for hit in known:  # a search also finds lines that were not read
        numbered.setdefault(hit.line, hit.text)
    return sorted(numbered.items())


def source_of(text: FileText, language: Language) -> Source:
    """Return how far a file was read."""
    say = phrases(language)
    count = sum(len(page.lines) for page in text.pages)
    if text.error and not count:
        return Source(text.path, "failed", text.error)
    if text.is_done and not count:
        return Source(text.path, "empty")
    if text.is_done and not text.error:
        return Source(text.path, "full", say.lines_read.format(lines=text.total or text.next_line() - 1))
    limit = say.limit.format(read=count, last=text.next_line() - 1)
    return Source(text.path, "part", text.error or limit)


def _greps(paths: Sequence[str], words: Sequence[str], language: Language) -> list[OfflineCall]:
    pattern = "|".join(re.escape(word) for word in words)
    folders_or_files = list(paths)
    if len(folders_or_files) > MAX_GREPS:
        folders_or_files = sorted({posixpath.dirname(path) for path in paths})[:MAX_GREPS]
    why = label(language, "Look for the question's words", "查找问题中的词")
    fixed = {"pattern": pattern, "literal": False, "case_sensitive": False, "max_results": MAX_HITS}
    return [OfflineCall("grep", {"description": why, "path": index, **fixed}) for index in folders_or_files]


def _pages(text: FileText, count: int, language: Language) -> list[OfflineCall]:
    size = _page_lines(text)
    start, calls = text.next_line(), list[OfflineCall]()
    while len(calls) < count and (text.total is None or start <= text.total):
        name = posixpath.basename(text.path)
        why = label(language, f"Read {name} from line {start}", f"读 {name}，从第 {start} 行起")
        where = {"path": text.path, "start_line": start, "end_line": start + size - 1}
        calls.append(OfflineCall("read_file", {"description": why, **where}))
        start += size
    return calls


def _page_lines(text: FileText) -> int:
    """Return how many lines make a full page, going by those already read."""
    count = sum(len(page.lines) for page in text.pages)
    chars = sum(len(line) + 1 for page in text.pages for line in page.lines)
    return max(20, min(4000, PAGE_CHARS * count // chars)) if chars else FIRST_PAGE_LINES


def _number(step: Step, name: str, default: int) -> int:
    value = step.args.get(name)
    return value if isinstance(value, int) else default
