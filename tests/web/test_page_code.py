"""The page's own checks: types, and its unit tests."""

import subprocess

import pytest
from web.browser import WEB, PageUnavailableError, build_page


@pytest.mark.parametrize("script", ["typecheck", "test"])
def test_the_pages_own_checks_pass(script: str) -> None:
    try:
        build_page()
    except PageUnavailableError as reason:
        pytest.skip(str(reason))

    done = subprocess.run(
        ["npm", "run", script], cwd=WEB, capture_output=True, text=True, timeout=600, check=False
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_the_lock_names_no_download_address() -> None:
    lock = (WEB / "package-lock.json").read_text()

    assert '"resolved"' not in lock
    assert ".tgz" not in lock
