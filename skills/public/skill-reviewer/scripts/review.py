#!/usr/bin/env python3
"""Check a skill, as a folder or .skill/.zip archive, for unsafe content and faults of form; run nothing.

Prints findings with rule, severity, file and line, and a verdict: pass, warn or block.
Exit code 0: pass; 1: warn or block; 2: the input cannot be read. --rules lists all rules.
"""

import argparse
import hashlib
import json
import re
import stat
import sys
import unicodedata
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NoReturn

from _front_matter import parse
from _rules import EXTRA_RULES, RULES

SEVERITIES = ("critical", "high", "medium", "low")
MAX_FILES = 1000
MAX_MATCHES = 20
MAX_BYTES = 10 * 1024 * 1024
CODE = {".py", ".sh", ".bash", ".js", ".mjs", ".ts", ".rb", ".pl", ".ps1", ".php", ".lua"}


COMPILED = [(rule, re.compile(rule.pattern, re.M)) for rule in RULES]
INVISIBLE = {0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x3164, 0xFFA0}
NAMED = re.compile(r"(?<![\w/.-])(?:references|scripts|templates|assets)/[\w./-]*\w\.\w+")
ORDER = re.compile(
    r"(?i)\b(?:you|agent|assistant|model|must|always|never|run|execute|send|read|write|fetch)\b|必须|执行|发送"
)
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".pdf", ".woff", ".woff2", ".ttf", ".otf"}
DATA = {".xlsx", ".docx", ".pptx", ".parquet", ".sqlite", ".db", ".zip", ".gz"}


@dataclass(frozen=True)
class Finding:
    """One match of a rule."""

    severity: str
    rule: str
    file: str
    line: int
    text: str


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def extra(rule: str, file: str, line: int, text: str) -> Finding:
    """Return a finding of a rule that is no pattern."""
    return Finding(EXTRA_RULES[rule][0], rule, file, line, text)


def from_folder(folder: Path) -> tuple[dict[str, bytes], list[Finding]]:
    """Return the files of a folder and findings on their kinds."""
    files: dict[str, bytes] = {}
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if "__pycache__" in path.parts or "/.git/" in f"/{name}/":
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            found.append(extra("LINK", name, 0, "not a plain file"))
        elif path.is_file():
            if path.stat().st_size > MAX_BYTES or len(files) >= MAX_FILES:
                found.append(extra("SIZE", name, 0, f"{path.stat().st_size:,} bytes; not read"))
                continue
            files[name] = path.read_bytes()
    return files, found


def from_archive(path: Path) -> tuple[dict[str, bytes], list[Finding]]:
    """Return the files of an archive, read in memory with limits, and findings on its members."""
    files: dict[str, bytes] = {}
    found = []
    left = 5 * MAX_BYTES
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist()[:MAX_FILES]:
                name, parts = info.filename, PurePosixPath(info.filename).parts
                kind = stat.S_IFMT(info.external_attr >> 16)
                if name.startswith("/") or ".." in parts or "\\" in name or ":" in name[:3]:
                    found.append(extra("PATH", name, 0, "leaves the folder"))
                elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    found.append(extra("LINK", name, 0, "not a plain file"))
                elif not info.is_dir():
                    with archive.open(info) as member:
                        data = member.read(min(MAX_BYTES, left) + 1)
                    left -= len(data)
                    if len(data) > MAX_BYTES or left < 0:
                        fail(f"{path}: '{name}' unpacks to too much; treat the archive as an attack")
                    files[name] = data
            if len(archive.infolist()) > MAX_FILES:
                found.append(
                    extra("SIZE", path.name, 0, f"more than {MAX_FILES} members; the rest was not read")
                )
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        fail(f"{path} cannot be read as an archive: {error}")
    return files, found


def text_findings(name: str, text: str) -> Iterator[Finding]:
    """Yield the findings on one text file."""
    suffix = PurePosixPath(name).suffix.lower()
    is_code = suffix in CODE or text.startswith("#!")
    for rule, pattern in COMPILED:
        if (rule.only == "code" and not (is_code or suffix == ".md")) or (rule.only == "prose" and is_code):
            continue
        for match in islice(pattern.finditer(text), MAX_MATCHES):
            line = text.count("\n", 0, match.start()) + 1
            yield Finding(rule.severity, rule.id, name, line, _shown(match[0], rule.id))
    yield from _hidden(name, text)
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > 2000 and suffix in CODE | {".md", ".txt", ""}:
            yield extra("LONG-LINE", name, number, f"{len(line)} characters: {line[:60]}…")


def _shown(text: str, rule: str) -> str:
    """Return a match on one line; secrets are masked."""
    line = " ".join(text.split())[:100]
    return f"{line[:6]}…" if rule.startswith("SECRET") else line


def _hidden(name: str, text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        for position, char in enumerate(line):
            code = ord(char)
            is_mark = number == 1 and position == 0 and code == 0xFEFF
            if code < 128 or is_mark or not (code in INVISIBLE or unicodedata.category(char) in ("Cf", "Co")):
                continue
            if code in (0x200C, 0x200D) and position and ord(line[position - 1]) > 0x2FF:
                continue  # joiners inside emoji and some scripts
            yield extra("HIDDEN-CHARS", name, number, f"U+{code:04X} {unicodedata.name(char, 'unnamed')}")
            break
    for position, comment in _comments(text):
        if ORDER.search(comment) and len(comment.split()) > 4:
            line = text.count("\n", 0, position) + 1
            yield extra("HIDDEN-COMMENT", name, line, " ".join(comment.split())[:100])


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield position and text of HTML comments; a search with a pattern could take quadratic time."""
    position = text.find("<!--")
    while position >= 0 and (end := text.find("-->", position)) >= 0:
        yield position, text[position + 4 : end]
        position = text.find("<!--", end)


def form_findings(files: dict[str, str], top: str) -> Iterator[Finding]:
    """Yield the findings on front matter, description and named files."""
    document = parse(files["SKILL.md"])
    for line, problem in document.problems:
        yield extra("FORMAT", "SKILL.md", line, problem)
    name, description = document.matter.get("name"), document.matter.get("description")
    if not isinstance(name, str) or not isinstance(description, str):
        yield extra("FORMAT", "SKILL.md", 1, "name or description is missing")
        return
    if top and name != top:
        yield extra("QUALITY", "SKILL.md", 1, f"name '{name}' differs from the folder '{top}'")
    if len(description) > 1024 or len(description.split()) < 6:
        yield extra(
            "QUALITY", "SKILL.md", 1, f"description has {len(description)} characters; 40 to 600 work best"
        )
    if len(document.body.splitlines()) >= 500:
        yield extra("QUALITY", "SKILL.md", 1, "500 lines or more; move depth to references/")
    if "license" not in document.matter:
        yield extra("QUALITY", "SKILL.md", 1, "no license")
    if "evals/evals.json" not in files:
        yield extra("QUALITY", "SKILL.md", 1, "no evals/evals.json: its use is unproven")
    yield from _file_findings(files, name, document.body)


def _file_findings(files: dict[str, str], name: str, body: str) -> Iterator[Finding]:
    own = re.sub(rf"/mnt/skills/\w+/{re.escape(name)}/", " ", body)
    for path in sorted(set(NAMED.findall(own))):
        if path not in files:
            yield extra("QUALITY", "SKILL.md", 1, f"names {path}, which does not exist")
    for path in files:
        base = PurePosixPath(path).name
        if path.startswith("scripts/") and not base.startswith("_") and base not in body:
            yield extra("QUALITY", path, 0, "script is not named in SKILL.md: why is it there?")


def review(path: Path) -> tuple[list[Finding], dict[str, bytes]]:
    """Return all findings, most severe first, and the files."""
    files, found = from_folder(path) if path.is_dir() else from_archive(path)
    top = path.resolve().name if path.is_dir() else ""
    if "SKILL.md" not in files and len({name.split("/")[0] for name in files}) == 1:
        top = next(iter(files)).split("/")[0]
        files = {name.split("/", 1)[1]: data for name, data in files.items() if "/" in name}
    if "SKILL.md" not in files:
        fail(f"{path} has no SKILL.md at its root or in its only folder")
    texts = {}
    for name, data in files.items():
        try:
            texts[name] = data.decode("utf-8")
        except UnicodeDecodeError:
            suffix = PurePosixPath(name).suffix.lower()
            if name == "SKILL.md":
                fail(f"{path}: SKILL.md is not UTF-8")
            if suffix not in PICTURES | DATA:
                found.append(extra("BINARY", name, 0, f"{len(data):,} bytes"))
    for name, text in texts.items():
        found += text_findings(name, text)
    found += form_findings(texts, top)
    return sorted(found, key=lambda each: (SEVERITIES.index(each.severity), each.file, each.line)), files


def verdict(found: list[Finding]) -> str:
    """Return pass, warn or block."""
    count = {severity: sum(each.severity == severity for each in found) for severity in SEVERITIES}
    if count["critical"] or count["high"] >= 3:
        return "block"
    return "warn" if count["high"] or count["medium"] else "pass"


def main() -> int:
    """Review the skill, print the findings, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, nargs="?", help="folder, .skill or .zip")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--rules", action="store_true", help="list the rules and exit")
    options = parser.parse_args()
    if options.rules:
        for rule in RULES:
            print(f"{rule.id:16} {rule.severity:9} {rule.title}")
        for name, (severity, title) in EXTRA_RULES.items():
            print(f"{name:16} {severity:9} {title}")
        return 0
    if options.path is None or not options.path.exists():
        fail(f"{options.path or 'the path'} does not exist; give a folder or a .skill file")
    found, files = review(options.path)
    result = verdict(found)
    whole = options.path.read_bytes() if options.path.is_file() else files["SKILL.md"]
    digest = hashlib.sha256(whole).hexdigest()
    if options.format == "json":
        listed = [asdict(each) for each in found]
        print(json.dumps({"verdict": result, "files": sorted(files), "sha256": digest, "findings": listed},
                         ensure_ascii=False, indent=2))  # fmt: skip
    else:
        for each in found:
            print(f"{each.severity:8} {each.rule:16} {each.file}:{each.line}  {each.text}")
        print(f"verdict: {result} ({len(found)} findings, {len(files)} files, sha256 {digest[:12]})")
    return 0 if result == "pass" else 1


if __name__ == "__main__":
    sys.exit(main())
