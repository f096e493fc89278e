"""Finds out which files a question is about: uploaded, named, or to be looked for."""

import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from deerflow.models.offline.conversation import Conversation, OfflineCall, Turn, label
from deerflow.models.offline.question import key_terms
from deerflow.models.offline.reading import hits_of
from deerflow.models.offline.results import read_paths
from deerflow.models.offline.tasks import parse_part
from deerflow.models.offline.words import Language, listed

UPLOADS = "/mnt/user-data/uploads"
WORKSPACE = "/mnt/user-data/workspace"
OUTPUTS = "/mnt/user-data/outputs"
MAX_FILES = 36
"""More than this are too many for one report."""
MAX_FOUND = 500

_QUOTED_PATH = re.compile(r"[`\"'“‘](/mnt/[^`\"'”’\n]+)[`\"'”’]")
_PLAIN_PATH = re.compile(r"(?<![\w/])/mnt/[^\s,;:!?`\"'“”‘’<>，。；：！？、（）()]+")
_TEXT_ENDINGS = listed(
    """
    c cc cfg conf cpp cs css csv go h html htm ini ipynb java js json jsonl jsx kt log lua md markdown
    mdx org php pl properties py r rb rs rst scala scss sh sql svg swift tex toml ts tsv tsx txt xml
    yaml yml adoc
    """
)
_NAME = re.compile(
    rf"(?<![\w/.@])[\w\-./]*[\w\-]\.(?:{'|'.join(sorted(_TEXT_ENDINGS))}|pdf|docx?)(?![\w/])", re.I | re.A
)
_CAPITAL_JS = re.compile(r"^[A-Z]\w*\.js$")
_ASKS_FOR_FILES = re.compile(
    r"\b(?:files?|notes?|documents?|docs|uploads?|uploaded|folders?|director(?:y|ies)|workspace|"
    r"repo(?:sitory)?|codebase|attach(?:ed|ments?)|readme|papers?|transcripts?)\b|文件|笔记|文档|资料|材料|"
    r"工作区|仓库|上传|附件|目录|代码库|论文",
    re.I,
)
_SMALL_TALK = re.compile(
    r"^\W*(?:hi|hello|hey|thanks?|thank you|good (?:morning|day|evening)|who are you|what are you|"
    r"what can you do|help|你好|您好|谢谢|多谢|你是谁|你能做什么|你会什么|帮助)(?:\s+(?:there|all|"
    r"very much|deerflow))?\W*$",
    re.I,
)
_SKIPPED_FOLDERS = listed(
    """
    .git .hg .svn node_modules .venv venv __pycache__ dist build target .idea .tool-results .cache
    site-packages
    """
)
_BINARY_ENDINGS = listed(
    """
    7z a avi bin bmp bz2 class dll doc docx dylib eot exe gif gz ico jar jpeg jpg lock mkv mov mp3 mp4 o
    odt otf pdf png ppt pptx pyc rar so sqlite tar tgz tif tiff ttf wav webm webp whl woff woff2 xls
    xlsx xz zip
    """
)


@dataclass(frozen=True, slots=True)
class FileRequest:
    """Which files a question is about, before anything was looked up."""

    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """To be listed: everything in them."""
    names: tuple[str, ...] = ()
    """To be looked for in uploads and workspace."""

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.folders or self.names)


@dataclass(frozen=True, slots=True)
class FileSelection:
    """The files to read, or the calls that find them."""

    files: tuple[str, ...] = ()
    calls: tuple[OfflineCall, ...] = ()
    missing: tuple[str, ...] = ()
    """Names that nothing was found for."""
    no_text: tuple[str, ...] = ()
    left_out: int = 0


def requested_files(conversation: Conversation) -> FileRequest:
    """Return which files the current question is about; none for small talk."""
    turn = conversation.current
    if is_small_talk(turn.question) and not turn.uploads:
        return FileRequest()
    known = _known(conversation)
    files, folders = _named_paths(turn.question)
    names, unknown = _named_files(turn.question, known)
    if files or folders or names:
        return FileRequest(tuple(dict.fromkeys((*files, *names))), tuple(folders), tuple(unknown))
    if turn.uploads or known:
        return FileRequest(turn.uploads or known, (), tuple(unknown))
    if unknown:
        return FileRequest((), (), tuple(unknown))
    return (
        FileRequest(folders=(UPLOADS, WORKSPACE)) if _ASKS_FOR_FILES.search(turn.question) else FileRequest()
    )


def is_small_talk(text: str) -> bool:
    """Say whether `text` is a greeting or a question about the model itself."""
    return bool(_SMALL_TALK.match(text))


def find(request: FileRequest, conversation: Conversation, language: Language) -> FileSelection:
    """Return the files of a request, or the calls that must be made first."""
    calls = _lookups(request, conversation, language)
    if calls:
        return FileSelection(calls=tuple(calls))
    files, missing, no_text = list(request.files), list[str](), list[str]()
    for folder in request.folders:
        listed = _listed(folder, "**/*", conversation)
        if not listed and posixpath.basename(folder) and folder not in (UPLOADS, WORKSPACE):
            files.append(folder)  # perhaps a file without an ending: reading it will tell
        no_text += [path for path in listed if _is_binary(path)]
        files += sorted((path for path in listed if not _is_binary(path)), key=_reading_order)
    for name in request.names:
        listed = [
            path for folder in (UPLOADS, WORKSPACE) for path in _listed(folder, f"**/{name}", conversation)
        ]
        files += listed
        missing += [] if listed else [name]
    distinct = list(dict.fromkeys(files))
    return _narrowed(distinct, tuple(missing), tuple(no_text), conversation, language)


def _lookups(request: FileRequest, conversation: Conversation, language: Language) -> list[OfflineCall]:
    tool = "glob" if "glob" in conversation.tools else "ls" if "ls" in conversation.tools else ""
    wanted = [(folder, "**/*") for folder in request.folders]
    wanted += [(folder, f"**/{name}") for name in request.names for folder in (UPLOADS, WORKSPACE)]
    done = {(step.argument("path"), step.argument("pattern")) for step in conversation.steps(tool)}
    calls = []
    for path, pattern in wanted if tool else ():
        why = label(language, f"See what is in {path}", f"查看 {path} 中的文件")
        more = {"pattern": pattern, "max_results": MAX_FOUND} if tool == "glob" else {}
        if (path, pattern if more else "") not in done:
            calls.append(OfflineCall(tool, {"description": why, "path": path, **more}))
    return [call for index, call in enumerate(calls) if call not in calls[:index]]


def _listed(path: str, pattern: str, conversation: Conversation) -> list[str]:
    """Return the readable paths that this turn's `glob` (or `ls`) found."""
    found = []
    for step in (*conversation.steps("glob"), *conversation.steps("ls")):
        if step.argument("path") == path and step.argument("pattern") in (pattern, "") and not step.failed:
            found += [name for name in read_paths(step.result, path=path) if _is_wanted(name, path)]
    if pattern != "**/*":
        found = [name for name in found if name.endswith(f"/{pattern[3:]}")]
    return list(dict.fromkeys(found))


def _narrowed(
    files: list[str],
    missing: tuple[str, ...],
    no_text: tuple[str, ...],
    conversation: Conversation,
    language: Language,
) -> FileSelection:
    """Keep the files that mention the question's words most, should there be too many."""
    if len(files) <= MAX_FILES:
        return FileSelection(tuple(files), (), missing, no_text)
    words = list(dict.fromkeys(key_terms(conversation.current.question)))
    if words and "grep" in conversation.tools and not conversation.steps("grep"):
        roots = sorted({"/".join(path.split("/")[:4]) for path in files})
        why = label(language, "Find the files that speak of it", "找出相关的文件")
        pattern = "|".join(re.escape(word) for word in words[:12])
        fixed = {"pattern": pattern, "literal": False, "case_sensitive": False, "max_results": 500}
        return FileSelection(
            calls=tuple(OfflineCall("grep", {"description": why, "path": root, **fixed}) for root in roots)
        )
    counts = Counter(hit.path for hit in hits_of(conversation))
    kept = sorted(sorted(files, key=lambda path: -counts[path])[:MAX_FILES], key=files.index)
    return FileSelection(tuple(kept), (), missing, no_text, len(files) - len(kept))


def _known(conversation: Conversation) -> tuple[str, ...]:
    """Return the files that this thread has spoken of before, newest question last."""
    found: list[str] = []
    for turn in conversation.turns[:-1]:
        found += [*turn.uploads, *_named_paths(turn.question)[0], *_touched(turn)]
    return tuple(dict.fromkeys([*found, *conversation.current.uploads]))


def _touched(turn: Turn) -> Iterable[str]:
    for step in turn.steps:
        if (
            step.name == "read_file"
            and not step.failed
            and step.argument("path").startswith((UPLOADS, WORKSPACE))
        ):
            yield step.argument("path")
        elif step.name == "task" and (part := parse_part(step.argument("prompt"))):
            yield from part.files


def _named_paths(question: str) -> tuple[list[str], list[str]]:
    quoted = _QUOTED_PATH.findall(question)
    rest = _QUOTED_PATH.sub(" ", question)
    paths = [path.rstrip(".") for path in (*quoted, *_PLAIN_PATH.findall(rest))]
    files = [path for path in paths if "." in posixpath.basename(path.rstrip("/")) and not path.endswith("/")]
    folders = [path.rstrip("/") for path in paths if path not in files]
    return list(dict.fromkeys(files)), list(dict.fromkeys(folders))


def _named_files(question: str, known: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the known files that a question names without their folder, and names not known yet."""
    bare = _PLAIN_PATH.sub(" ", _QUOTED_PATH.sub(" ", question))
    matched = [path for path in known if posixpath.basename(path) in bare]
    taken = {posixpath.basename(path) for path in matched}
    unknown = []
    for name in dict.fromkeys(_NAME.findall(bare)):
        clean = name.strip("./")
        if posixpath.basename(clean) not in taken and not _CAPITAL_JS.match(clean):
            unknown.append(clean)
    return matched, unknown


def _is_wanted(path: str, root: str) -> bool:
    parts = path.removeprefix(root).strip("/").split("/")
    return not any(part in _SKIPPED_FOLDERS or part.startswith(".") for part in parts)


def _is_binary(path: str) -> bool:
    return posixpath.splitext(path)[1].lower().lstrip(".") in _BINARY_ENDINGS


def _reading_order(path: str) -> tuple[bool, int, str]:
    return (not posixpath.basename(path).lower().startswith("readme"), path.count("/"), path)
