"""What `make run` says while it works: nobody waits in front of an empty screen."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_run_says_where_the_page_will_be_and_what_it_installs(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements").mkdir()
    for name in ("pyproject.toml", "requirements/run.lock"):
        (tmp_path / name).touch()

    done = subprocess.run(
        ["make", "-n", "run", "PORT=2030"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    said = [
        "at http://127.0.0.1:2030",
        "Installing uv",
        "-m venv .boot",
        "Installing DeerFlow's Python packages",
        "pip sync",
        "Starting DeerFlow",
        "deerflow serve",
    ]
    assert done.returncode == 0, done.stderr
    assert [done.stdout.find(words) for words in said] == sorted(done.stdout.find(words) for words in said)
    assert all(words in done.stdout for words in said), done.stdout
