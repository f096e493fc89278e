"""Runs the scripts of the shipped skills as the sandbox does: one Python process, a working folder, files."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PUBLIC = Path(__file__).parents[2] / "skills" / "public"
SCRIPT_SECONDS = 120

RunScript = Callable[..., str]
"""`run_script(skill, script, *arguments, code=0, without=None)` → what it printed; see the fixture."""


@pytest.fixture(scope="session")
def public_skills() -> Path:
    """Return the folder of the shipped skills."""
    return PUBLIC


@pytest.fixture
def run_script(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> RunScript:
    """Return a function that runs `skills/public/{skill}/scripts/{script}` in a temporary folder.

    It asserts the exit `code` and returns the standard output, or the standard error for a code other than 0.
    `without` names a Python module that the script must find missing.
    """

    caches = tmp_path_factory.getbasetemp() / "matplotlib"  # shared: its list of fonts takes seconds to make

    def run(skill: str, script: str, *arguments: object, code: int = 0, without: str | None = None) -> str:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MPLCONFIGDIR": str(caches)}
        if without:
            _block(tmp_path / ".missing", without)
            environment["PYTHONPATH"] = str(tmp_path / ".missing")
        done = subprocess.run(
            [sys.executable, str(PUBLIC / skill / "scripts" / script), *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SCRIPT_SECONDS,
            check=False,
        )
        assert done.returncode == code, f"{script} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stderr if code else done.stdout

    return run


def _block(folder: Path, module: str) -> None:
    """Write a module that cannot be imported, as if its package were not installed."""
    folder.mkdir(exist_ok=True)
    error = f"raise ModuleNotFoundError(\"No module named '{module}'\", name='{module}')\n"
    (folder / f"{module}.py").write_text(error)
