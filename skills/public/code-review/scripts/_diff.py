"""Reads a unified diff, from git or from a file, as files with numbered lines."""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$")
GIT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a hunk: `mark` is '+', '-' or ' '; `number` counts in the new file ('-': in the old)."""

    mark: str
    number: int
    text: str


@dataclass(slots=True)
class ChangedFile:
    """One file of a diff."""

    path: str
    status: str = "modified"
    old_path: str = ""
    binary: bool = False
    lines: list[Line] = field(default_factory=list)

    @property
    def added(self) -> list[Line]:
        """Return the lines that are new."""
        return [line for line in self.lines if line.mark == "+"]

    @property
    def removed(self) -> list[Line]:
        """Return the lines that are gone."""
        return [line for line in self.lines if line.mark == "-"]


def stop(message: str) -> NoReturn:
    """Say what was wrong and leave with exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def read_diff(diff: Path | None, repo: Path, base: str | None, staged: bool) -> str:
    """Return the text of a diff: of a file, or what `git diff` says in `repo`."""
    if diff is not None:
        try:
            return (
                sys.stdin.read() if str(diff) == "-" else diff.read_text(encoding="utf-8", errors="replace")
            )
        except OSError as error:
            stop(f"{diff} cannot be read: {error.strerror}")
    if base is not None and base.startswith("-"):
        stop(f"--base {base!r} is no revision")
    command = ["git", "-C", str(repo), "diff", "--no-color", "--no-ext-diff", "--find-renames"]
    command += ["--cached"] if staged else [f"{base}...HEAD"] if base else ["HEAD"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=GIT_SECONDS, check=False
        )
    except FileNotFoundError:
        stop("git is not installed; save the diff to a file and pass --diff FILE")
    if done.returncode:
        stop(f"git diff failed in {repo}: {done.stderr.strip()[:300]}")
    return done.stdout


def parse(text: str) -> list[ChangedFile]:
    """Return the files of a unified diff; stop when it holds none."""
    files: list[ChangedFile] = []
    old = new = left = right = 0
    for raw in text.splitlines():
        if left > 0 or right > 0:
            mark, rest = (raw[:1] or " "), raw[1:]
            if mark == "\\":
                continue
            files[-1].lines.append(Line(mark, old if mark == "-" else new, rest))
            old += mark in "- "
            new += mark in "+ "
            left -= mark in "- "
            right -= mark in "+ "
        elif hunk := HUNK.match(raw):
            if not files:
                stop("the diff has a hunk before any file name")
            old, new = int(hunk[1]), int(hunk[3])
            left, right = int(hunk[2] or 1), int(hunk[4] or 1)
        else:
            _header(files, raw)
    if not files:
        stop("there are no changes in the diff")
    return files


def _header(files: list[ChangedFile], raw: str) -> None:
    if raw.startswith("diff --git "):
        files.append(ChangedFile(raw.rpartition(" b/")[2]))
    elif raw.startswith("--- "):
        name = _name(raw[4:])
        if not files or files[-1].lines:  # a plain diff without git's line
            files.append(ChangedFile(name))
        files[-1].old_path = name
    elif raw.startswith("+++ ") and files:
        name = _name(raw[4:])
        files[-1].path = name if name != "/dev/null" else files[-1].old_path
    elif files and raw.startswith(("new file", "deleted file", "rename from", "Binary files")):
        words = {"new": "added", "deleted": "deleted", "rename": "renamed"}
        files[-1].status = words.get(raw.split()[0], files[-1].status)
        files[-1].binary = files[-1].binary or raw.startswith("Binary")


def _name(raw: str) -> str:
    name = raw.split("\t")[0].strip().strip('"')
    return name[2:] if name.startswith(("a/", "b/")) else name
