"""The steps of the offline model: find the files, have them read, write the report, present it and answer.

Each call looks at what this turn has done so far and returns the one next step.
"""

import posixpath
import re
from collections.abc import Sequence

from deerflow.models.offline.conversation import Conversation, OfflineCall, Reply, Step
from deerflow.models.offline.phrases import Language, files_phrase, language_of, say
from deerflow.models.offline.report import answer_quotes, report_path, write_report
from deerflow.models.offline.results import is_document, read_search, read_text
from deerflow.models.offline.tables import Computation, is_table
from deerflow.retrieval import terms
from deerflow.retrieval.quotes import Quote, best_quotes, cited, read_cited

UPLOADS = "/mnt/user-data/uploads"
WORKSPACE = "/mnt/user-data/workspace"
MAX_TASKS = 12
"""Files that sub-agents read one by one; of more, those that the search found best."""
MAX_LISTED = 1000
MAX_SHOWN = 200
MAX_WRITES = 2
_OF_FILE = 6
_SUBAGENT = "general-purpose"
_TASK = re.compile(r"\AQuestion: (?P<question>.+?)\n\nFiles:\n(?P<files>(?:- /[^\n]+(?:\n|\Z))+)", re.S)
_TASK_PROMPT = """Question: {question}

Files:
{files}

Search these files with search_files and quote the few sentences that answer the question, exactly as they \
stand in the file, as a list, each followed by its place as [citation:NAME:LINE](PATH#LLINE). Say so if \
there are none. Do not write files; your answer is the result."""
_QUOTED_PATH = re.compile(r"[`\"'“‘](/mnt/[^`\"'”’\n]+)[`\"'”’]")
_PLAIN_PATH = re.compile(r"(?<![\w/])/mnt/[^\s,;:!?`\"'“”‘’<>，。；：！？、（）()]+")
_LISTED = re.compile(r"\n+The files are:\n((?:- /mnt/[^\n]+(?:\n|\Z))+)\Z")
"""The list that `deerflow run` adds to a task."""
_STORED = re.compile(r"(/mnt/user-data/outputs/\S+?\.txt)")
_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|thanks?|thank you|who are you|what (?:are|can) you(?: do)?|help|你好|您好|谢谢|"
    r"你是谁|你能做什么|你会什么|帮助)(?:\s+(?:there|all|very much|deerflow))?\W*$",
    re.I,
)
_ASKS_FOR_LIST = re.compile(
    r"\b(?:what|which files|list|show)\b[^.?!]*\b(?:in|of)\b[^.?!]*\b(?:folder|directory|workspace)\b|"
    r"(?:文件夹|目录|工作区)[^。？！]*(?:有什么|有哪些|内容)|有哪些文件",
    re.I,
)


def decide(conversation: Conversation) -> Reply:
    """Return the next step of a lead or a sub-agent, whichever the tools and the prompt show."""
    task = None if "task" in conversation.tools else _TASK.search(conversation.current.question)
    if task:
        files = [line[2:].strip() for line in task["files"].strip().split("\n")]
        return _subagent(task["question"], files, conversation)
    return _Lead(conversation).reply()


def _subagent(question: str, files: list[str], conversation: Conversation) -> Reply:
    """Read files whole and search them; answer with the sentences that fit best, file by file."""
    language = _language(question)
    searches = conversation.steps("search_files")
    if "search_files" not in conversation.tools:
        return Reply(say("no_tools", language))
    if not searches:
        readable = [path for path in files if "read_file" in conversation.tools and not is_document(path)]
        why = say("task", language, names=files_phrase(files, language))
        read = [OfflineCall("read_file", {"description": why, "path": path}) for path in readable]
        return Reply(calls=(_search(question, files, language), *read))
    found = read_search(searches[-1].result)
    if searches[-1].failed:
        return Reply(searches[-1].result)
    whole = {step.argument("path"): step for step in conversation.steps("read_file") if not step.failed}
    lines: list[str] = []
    for path in files:
        quotes = [each for each in found.quotes if each.path == path]
        if path in whole:
            quotes = [*read_text(path, whole[path].result), *quotes]
        lines += [f"- {cited(each)}" for each in best_quotes(question, quotes, limit=_OF_FILE)]
    omitted = [f"{say('omitted', language)}: {each}" for each in found.omitted]
    nothing = say("nothing", language, files=files_phrase(files, language))
    return Reply("\n".join([say("found", language), "", *(lines or [nothing]), "", *omitted]).strip())


def _search(question: str, paths: Sequence[str], language: Language, most: int = 12) -> OfflineCall:
    arguments = {"query": question[:2000], "paths": list(paths), "max_results": most}
    return OfflineCall("search_files", {"description": say("search", language), **arguments})


class _Lead:
    """One step of the lead in a turn."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._question = conversation.current.question
        self._title = _LISTED.sub("", self._question) or self._question
        self._language = _language(self._question)

    def reply(self) -> Reply:
        """Return the next step."""
        places = self._places()
        if not places or "search_files" not in self._conversation.tools:
            return Reply(self._introduction())
        if _ASKS_FOR_LIST.search(self._question) and "glob" in self._conversation.tools:
            return self._list(places)
        searches = self._conversation.steps("search_files")
        files, quotes, omitted = places, tuple[Quote, ...](), tuple[str, ...]()
        are_few = 1 < len(places) <= MAX_TASKS and all(map(_is_file, places))
        if not are_few or self._is_alone:  # else sub-agents read them without a search before
            if not searches:
                return Reply(calls=(_search(self._question, places, self._language),))
            found = read_search(searches[0].result)
            files, quotes, omitted = found.files[:MAX_TASKS], found.quotes, found.omitted
            if not files:
                return Reply(self._no_files(places, omitted))
        computation = Computation.of(self._question, files, self._conversation.tools)
        if computation and (computed := self._computed(computation)):
            return computed
        if self._is_alone or len(files) == 1:
            return self._report(quotes, files, omitted)
        return self._delegate(files, omitted)

    @property
    def _is_alone(self) -> bool:
        return "task" not in self._conversation.tools

    def _computed(self, computation: Computation) -> Reply | None:
        """Return the call that computes an answer, or the answer; None when it failed."""
        done = self._conversation.steps("python")
        if not done:
            why = say("compute", self._language, name=posixpath.basename(computation.path))
            return Reply(calls=(OfflineCall("python", {"description": why, "code": computation.program}),))
        text = "" if done[0].failed else computation.answer(done[0].result, self._language)
        return Reply(f"{text}\n\n{say('footer', self._language)}") if text else None

    def _no_files(self, places: Sequence[str], omitted: Sequence[str]) -> str:
        lines = [
            say("no_files", self._language, places=", ".join(places)),
            *(f"- {each}" for each in omitted),
        ]
        return "\n\n".join(["\n".join(lines), self._introduction()])

    def _introduction(self) -> str:
        keys = [
            say("unusable_key", self._language, variable=variable, provider=provider, command=command)
            for variable, provider, command in self._conversation.unusable_keys
        ]
        return "\n\n".join([say("introduction", self._language), *(keys or [say("connect", self._language)])])

    def _places(self) -> tuple[str, ...]:
        """Return the files and folders that the question is about; none for a greeting."""
        turn = self._conversation.current
        named = _named(self._question)
        if turn.uploads and not named:
            return turn.uploads
        known = list(dict.fromkeys(path for each in self._conversation.turns for path in each.uploads))
        named += [path for path in known if posixpath.basename(path) in self._question and path not in named]
        if named:
            return tuple(named)
        if _GREETING.match(self._question) or not terms(self._question):
            return ()
        earlier = [path for each in self._conversation.turns for path in _named(each.question)]
        return tuple(known or dict.fromkeys(earlier)) or (UPLOADS, WORKSPACE)

    def _list(self, places: Sequence[str]) -> Reply:
        """List folders; a listing that was stored because it is long is read from its file."""
        label = {"description": say("list", self._language)}
        done = {step.argument("path"): step.result for step in self._conversation.steps("glob")}
        read = {step.argument("path"): step.result for step in self._conversation.steps("read_file")}
        wanted = {"pattern": "**/*", "max_results": MAX_LISTED}
        calls = [
            OfflineCall("glob", {**label, **wanted, "path": path}) for path in places if path not in done
        ]
        stored = {path: found[1] for path, text in done.items() if (found := _STORED.search(text))}
        calls += [
            OfflineCall("read_file", {**label, "path": file}) for file in stored.values() if file not in read
        ]
        if calls:
            return Reply(calls=tuple(calls))
        names = []
        for place, text in done.items():
            lines = read.get(stored.get(place, ""), text).split("\n")
            names += [
                line.removeprefix(f"{place.rstrip('/')}/") for line in lines if line.startswith("/mnt/")
            ]
        shown = [f"- {name}" for name in names[:MAX_SHOWN]]
        more = [say("more", self._language, count=len(names) - MAX_SHOWN)] if len(names) > MAX_SHOWN else []
        head = say("listing", self._language, count=len(names), places=", ".join(places))
        return Reply("\n".join([head, "", *shown, *more, "", say("footer", self._language)]))

    def _delegate(self, files: Sequence[str], unread: Sequence[str]) -> Reply:
        done = {step.argument("prompt"): step for step in self._conversation.steps("task")}
        prompts = {
            path: _TASK_PROMPT.format(question=self._question[:2000], files=f"- {path}") for path in files
        }
        waiting = [path for path in files if prompts[path] not in done]
        if waiting:
            return Reply(
                calls=tuple(self._task(path, prompts[path]) for path in waiting[: self._conversation.limit])
            )
        quotes: list[Quote] = []
        omitted = list(unread)
        for path in files:
            brought, left_out = self._brought(path, done[prompts[path]])
            quotes += brought
            omitted += left_out
        return self._report(quotes, files, omitted)

    def _task(self, path: str, prompt: str) -> OfflineCall:
        title = say("task", self._language, names=posixpath.basename(path))
        return OfflineCall("task", {"description": title, "prompt": prompt, "subagent_type": _SUBAGENT})

    def _brought(self, path: str, step: Step) -> tuple[list[Quote], list[str]]:
        quotes = [each for each in read_cited(step.result) if each.path == path]
        omitted = re.findall(rf"^{say('omitted', self._language)}: (.*)$", step.result, re.M)
        if not quotes and not omitted and say("found", self._language) not in step.result:
            reason = " ".join(step.result.split())[:300]
            omitted = [f"{path}: {say('failed_task', self._language, reason=reason)}"]
        return quotes, omitted

    def _report(self, quotes: Sequence[Quote], files: Sequence[str], omitted: Sequence[str]) -> Reply:
        chosen = best_quotes(self._question, quotes, limit=60)
        if not chosen:
            nothing = say("nothing", self._language, files=files_phrase(files, self._language))
            return Reply(
                "\n".join([nothing, *(f"- {each}" for each in omitted), "", say("footer", self._language)])
            )
        writes = self._conversation.steps("write_file")
        written = next((step for step in writes if not step.failed), None)
        text = write_report(self._title, chosen, files, omitted, self._language)
        if written is None and len(writes) < MAX_WRITES and "write_file" in self._conversation.tools:
            path = report_path(self._title, len(self._conversation.turns), len(writes))
            arguments = {"description": say("write", self._language), "path": path, "content": text}
            return Reply(calls=(OfflineCall("write_file", arguments),))
        path = written.argument("path") if written else ""
        if (
            written
            and "present_files" in self._conversation.tools
            and not self._conversation.steps("present_files")
        ):
            return Reply(calls=(OfflineCall("present_files", {"filepaths": [path]}),))
        where = (
            say("report_at", self._language, count=text.count("[citation:"), path=path)
            if written
            else say("write_failed", self._language, reason=writes[-1].result[:200])
            if writes
            else ""
        )
        head = say("answer", self._language, files=files_phrase(files, self._language))
        lines = [f"- {cited(each)}" for each in answer_quotes(self._question, chosen)]
        return Reply(
            "\n".join([head, "", *lines, "", *([where, ""] if where else []), say("footer", self._language)])
        )


def _named(question: str) -> list[str]:
    """Return the paths in a question."""
    listed = [line[2:] for found in _LISTED.findall(question) for line in found.splitlines()]
    question = _LISTED.sub("", question)
    quoted = _QUOTED_PATH.findall(question)
    plain = _PLAIN_PATH.findall(_QUOTED_PATH.sub(" ", question))
    return list(dict.fromkeys(path.rstrip("./") for path in (*listed, *quoted, *plain)))


def _language(question: str) -> Language:
    """Return the language of a question, whatever the names of its files are written in."""
    return language_of(_PLAIN_PATH.sub(" ", _QUOTED_PATH.sub(" ", _LISTED.sub("", question))))


def _is_file(path: str) -> bool:
    return "." in posixpath.basename(path) or is_table(path)
