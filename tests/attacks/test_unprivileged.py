"""The second pass: the same attacks against a server that is no root."""

import os
import subprocess

import pytest

from .conftest import open_folder
from .unprivileged import NOBODY, build

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0, reason="this run is the unprivileged pass itself, or has no root to give up"
    ),
    pytest.mark.timeout(900),
]


def test_every_attack_is_refused_without_root_too() -> None:
    with open_folder() as root:
        root.chmod(0o755)
        python = build(root)
        home = root / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)

        finished = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "tests/attacks"],
            cwd=root,
            env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            capture_output=True,
            text=True,
        )

    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]
    assert " passed" in finished.stdout
