"""Walks a project: its source files without what was generated, installed or is version control."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

SKIPPED = {
    ".git",
    ".hg",
    ".svn",
    ".venv",
    "venv",
    "env",
    "node_modules",
    "__pycache__",
    "dist",
    "build",
    "target",
    "vendor",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".idea",
    ".vscode",
    "coverage",
    ".next",
    "site-packages",
}
LANGUAGES = {
    ".py": "Python",
    ".js": "JavaScript",
    ".mjs": "JavaScript",
    ".jsx": "JavaScript",
    ".ts": "TypeScript",
    ".tsx": "TypeScript",
    ".go": "Go",
    ".rs": "Rust",
    ".java": "Java",
    ".kt": "Kotlin",
    ".rb": "Ruby",
    ".php": "PHP",
    ".c": "C",
    ".h": "C",
    ".cpp": "C++",
    ".cs": "C#",
    ".swift": "Swift",
    ".sh": "Shell",
    ".sql": "SQL",
    ".html": "HTML",
    ".css": "CSS",
}
MAX_BYTES = 1_000_000
MAX_FILES = 20_000


def stop(message: str) -> NoReturn:
    """Say what was wrong and leave with exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def files(root: Path) -> list[Path]:
    """Return the files of a project in a stable order; links are not followed."""
    if not root.is_dir():
        stop(f"{root} is not a folder")
    found: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED and not name.endswith(".egg-info")
        )
        found += [Path(folder) / name for name in sorted(names) if not (Path(folder) / name).is_symlink()]
        if len(found) > MAX_FILES:
            stop(f"{root} has more than {MAX_FILES} files; name a folder inside it")
    return found


def text_of(file: Path) -> str:
    """Return the text of a file; empty when it is large or no text."""
    try:
        return "" if file.stat().st_size > MAX_BYTES else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def sources(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield source files with their language."""
    for file in files(root):
        language = LANGUAGES.get(file.suffix.lower())
        if language:
            yield file, language
