"""Checks a skill's files without running them: secrets, hidden text, injected instructions, harmful commands.

The rules are in `scan_rules.py`, one table with ids. A `block` finding keeps a package from being written, a
`warn` finding is shown. The patterns take linear time, and files and findings are bounded, so that a package
of the largest accepted size is checked within seconds. Run it in a thread.
"""

import base64
import binascii
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from deerflow.skills.package_files import MAX_FILE_BYTES, MAX_FILES, MAX_TOTAL_BYTES
from deerflow.skills.scan_rules import FILE_RULES, TEXT_RULES, Level, Rule, fold

MAX_TEXT_BYTES = 512 * 1024
"""Of one file with instructions or code."""
MAX_DATA_BYTES = 128 * 1024
"""Of one data file; the rest is not checked."""
MAX_ALL_TEXT_BYTES = 4 * 1024 * 1024
MAX_FINDINGS = 200
_SHOWN_CHARS = 120
_MAX_PAYLOADS = 100
DATA_FOLDER = "evals"
"""Test data of the skill: an agent is never told to follow it, so only its files and secrets can block."""
SCRIPT_SUFFIXES = frozenset(
    {
        ".bash",
        ".bat",
        ".cjs",
        ".cmd",
        ".js",
        ".mjs",
        ".php",
        ".pl",
        ".ps1",
        ".py",
        ".rb",
        ".sh",
        ".ts",
        ".zsh",
    }
)
_DATA_SUFFIXES = frozenset(
    {".bib", ".csv", ".json", ".jsonl", ".log", ".nbib", ".ris", ".svg", ".tsv", ".xml"}
)
_BINARY_SUFFIXES = frozenset(
    {".class", ".com", ".dll", ".dylib", ".exe", ".jar", ".o", ".pyc", ".pyd", ".so"}
)
_ARCHIVE_SUFFIXES = frozenset({".7z", ".bz2", ".gz", ".rar", ".skill", ".tar", ".tgz", ".whl", ".xz", ".zip"})
_BINARY_STARTS = (
    b"\x7fELF", b"MZ", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe", b"\x00asm",
)  # fmt: skip
_WINDOW = 8192
_OVERLAP = 1024
"""Patterns read a window at a time: `re` holds the interpreter's lock, and a match is shorter than this."""
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{24,65536}={0,2}")


@dataclass(frozen=True, slots=True)
class ScanFinding:
    """One rule that matched in a package."""

    rule_id: str
    level: Level
    file: str
    """Path relative to the skill's folder; `.` for the package itself."""
    line: int | None
    text: str
    """What the rule means, and an excerpt; secrets are masked."""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: [{self.rule_id}] {self.text}"


def scan(folder: Path, *, is_custom: bool = True) -> list[ScanFinding]:
    """Return what the rules find in a skill's folder, blocking findings first.

    Args:
        is_custom: False for the shipped skills, whose scripts are not reported as such.
    """
    found: list[ScanFinding] = []
    size = text_size = 0
    for number, entry in enumerate(_files(folder), start=1):
        file = _read_file(folder, entry, is_custom=is_custom)
        found += file.findings
        size, text_size = size + file.size, text_size + len(file.text)
        if number > MAX_FILES or size > MAX_TOTAL_BYTES or text_size > MAX_ALL_TEXT_BYTES:
            limit = f"at most {MAX_FILES:,} files, {MAX_TOTAL_BYTES:,} bytes, {MAX_ALL_TEXT_BYTES:,} of text"
            found.append(_about_file("oversize-package", ".", limit))
            break
        found += scan_text(file.text, file.name)
    found.sort(key=lambda finding: finding.level != "block")
    return found[:MAX_FINDINGS]


def scan_text(text: str, file: str = "SKILL.md") -> list[ScanFinding]:
    """Return what the rules for text find in one file's text."""
    is_data = PurePosixPath(file).parts[:1] == (DATA_FOLDER,)
    found = [*_matches(text, file), *_payloads(text, file)]
    return [replace(each, level="warn") if is_data and _is_instruction(each) else each for each in found]


def blocking(findings: Sequence[ScanFinding]) -> list[ScanFinding]:
    """Return the findings that keep a package from being written."""
    return [finding for finding in findings if finding.level == "block"]


def is_executable(path: str, content: bytes, *, has_mode: bool = False) -> bool:
    """Return whether a file of a skill is a program: by its mode, suffix or first line."""
    return has_mode or PurePosixPath(path).suffix.lower() in SCRIPT_SUFFIXES or content.startswith(b"#!")


def _is_instruction(finding: ScanFinding) -> bool:
    rule = TEXT_RULES.get(finding.rule_id)
    return rule is not None and not rule.is_secret


def _files(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder except folders, in a stable order; links are not followed."""
    for here, folders, files in os.walk(folder):
        folders.sort()
        linked = [name for name in folders if (Path(here) / name).is_symlink()]
        yield from (Path(here) / name for name in sorted([*files, *linked]))


@dataclass(frozen=True, slots=True)
class _ReadFile:
    """A file of a package with what its kind and size break."""

    name: str
    findings: tuple[ScanFinding, ...]
    size: int = 0
    text: str = ""
    """The part that is checked as text; empty for binary data."""


def _read_file(folder: Path, file: Path, *, is_custom: bool) -> _ReadFile:
    name = file.relative_to(folder).as_posix()
    info = file.lstat()
    if not name.isprintable():
        shown = ascii(name)[:_SHOWN_CHARS]
        return _ReadFile(shown, (_about_file("unicode-file-name", shown, "rename it"),))
    if stat.S_ISLNK(info.st_mode):
        target = str(file.readlink())[:_SHOWN_CHARS]
        return _ReadFile(name, (_about_file("symlink", name, f"points to {target!r}"),))
    if not stat.S_ISREG(info.st_mode):
        return _ReadFile(name, (_about_file("special-file", name, "remove it"),))
    if info.st_size > MAX_FILE_BYTES:
        return _ReadFile(name, (_about_file("oversize-file", name, f"{info.st_size:,} bytes"),), info.st_size)
    content = file.read_bytes()
    found = list(_about_content(name, content, is_mode_set=bool(info.st_mode & 0o100) and is_custom))
    is_data = PurePosixPath(name).suffix.lower() in _DATA_SUFFIXES
    limit = MAX_DATA_BYTES if is_data else MAX_TEXT_BYTES
    text = _decoded(content, limit)
    if text and len(content) > limit:
        rule_id = "oversize-data" if is_data else "oversize-text"
        found.append(_about_file(rule_id, name, f"only the first {limit:,} bytes were checked"))
    return _ReadFile(name, tuple(found), info.st_size, text)


def _about_content(name: str, content: bytes, *, is_mode_set: bool) -> Iterator[ScanFinding]:
    path = PurePosixPath(name)
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    if content.startswith(_BINARY_STARTS) or suffixes & _BINARY_SUFFIXES:
        yield _about_file("executable-binary", name, "a compiled program")
    elif is_mode_set:
        yield _about_file("executable-file", name, "its mode allows execution")
    if suffixes & _ARCHIVE_SUFFIXES:
        yield _about_file("nested-archive", name, "its contents were not checked")
    if any(part.startswith(".") for part in path.parts):
        yield _about_file("hidden-file", name, "its name begins with a dot")


def _decoded(content: bytes, limit: int) -> str:
    """Return the text of a file up to a limit; empty for binary data."""
    head = content[:limit]
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head.decode("utf-16", errors="replace")
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        is_cut = len(content) > limit and error.start > limit - 4
        # Text in another encoding still shows ASCII commands.
        return head.decode(errors="replace") if is_cut or b"\x00" not in head[:8192] else ""


def _matches(text: str, file: str) -> Iterator[ScanFinding]:
    """Yield the first match of every rule; `fold` keeps the lines, so that their numbers stay right."""
    folded = fold(text)
    for rule in TEXT_RULES.values():
        source = text if rule.is_exact else folded
        match = _first_match(rule, source)
        if match is not None:
            line = source.count("\n", 0, match.start()) + 1
            yield ScanFinding(rule.id, rule.level, file, line, f"{rule.meaning}: {_excerpt(rule, match[0])}")


def _first_match(rule: Rule, text: str) -> re.Match[str] | None:
    for start in range(0, len(text), _WINDOW):
        for match in rule.pattern.finditer(text, start, start + _WINDOW + _OVERLAP):
            if rule.accepts(match):
                return match
    return None


def _payloads(text: str, file: str) -> Iterator[ScanFinding]:
    """Yield a finding for base64 text that decodes to something a rule blocks."""
    for number, match in enumerate(_ENCODED.finditer(text)):
        if number >= _MAX_PAYLOADS:
            return
        hidden = _base64_text(match[0])
        inner = (
            next((each for each in _matches(hidden, file) if each.level == "block"), None) if hidden else None
        )
        if inner is not None:
            rule = TEXT_RULES["obfuscation-encoded-payload"]
            line = text.count("\n", 0, match.start()) + 1
            yield ScanFinding(
                rule.id, rule.level, file, line, f"{rule.meaning}, {inner.rule_id}: {inner.text}"
            )
            return


def _base64_text(encoded: str) -> str | None:
    try:
        text = base64.b64decode(encoded[: len(encoded) // 4 * 4], validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return text if text.isprintable() or "\n" in text else None


def _excerpt(rule: Rule, matched: str) -> str:
    if rule.is_secret:
        return f"{matched[:4]}… ({len(matched)} characters)"
    short = " ".join(matched.split())[:_SHOWN_CHARS]
    return "".join(
        char if char.isprintable() and not _is_mark(char) else f"[U+{ord(char):04X}]" for char in short
    )


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Cf", "Co", "Cn")


def _about_file(rule_id: str, file: str, detail: str) -> ScanFinding:
    level, meaning = FILE_RULES[rule_id]
    return ScanFinding(rule_id, level, file, None, f"{meaning}: {detail}")
