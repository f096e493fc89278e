"""The command that installs what is missing fits this installation."""

import re
import sysconfig
import tomllib
from pathlib import Path

import pytest

from deerflow.config.extras import EXTRAS, PURPOSES, find_installer, install_hint, program

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(sysconfig.get_path("scripts"))
RUN_EXTRAS = ("acp", "anthropic", "ddgs", "deepseek", "google", "mcp", "ollama")


def uv_at(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_every_extra_has_a_purpose_and_every_module_an_extra() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert set(declared) == set(PURPOSES) == set(EXTRAS.values())


def test_what_make_run_installs_holds_the_common_providers() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lock = (ROOT / "requirements" / "run.lock").read_text()

    wanted = [requirement for extra in RUN_EXTRAS for requirement in declared[extra]]
    assert [one for one in wanted if f"\n{one} \\" not in f"\n{lock}"] == []
    assert "://" not in lock


def test_an_extra_is_installed_by_the_command_line_of_this_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(SCRIPTS.parent.parent)
    assert install_hint("langchain_google_genai") == f"{SCRIPTS.parent.name}/bin/deerflow install google"

    monkeypatch.chdir(tmp_path)
    assert program() == str(SCRIPTS / "deerflow")

    monkeypatch.setenv("PATH", f"{SCRIPTS}:/usr/bin")
    assert install_hint("psycopg") == "deerflow install postgres"


def test_another_package_is_installed_by_what_installs_here() -> None:
    hint = install_hint("no_such_package")

    assert re.fullmatch(r"\S+ (-m )?pip install (--python \S+ )?no-such-package", hint)


def test_what_make_made_is_installed_into_by_its_own_uv(tmp_path: Path) -> None:
    uv = uv_at(tmp_path / "a b" / ".boot" / "bin" / "uv")
    prefix = tmp_path / "a b" / ".venv"

    found = find_installer(prefix=prefix, has_pip=True, path="")

    assert found is not None
    assert found.command == (str(uv), "pip", "install", "--python", str(prefix / "bin" / "python"))
    assert found.is_from_make


def test_pip_comes_before_a_uv_from_elsewhere_and_without_both_there_is_none(tmp_path: Path) -> None:
    uv = uv_at(tmp_path / "programs" / "uv")
    prefix, path = tmp_path / "env", str(uv.parent)
    python = str(prefix / "bin" / "python")

    with_pip = find_installer(prefix=prefix, has_pip=True, path=path)
    with_uv = find_installer(prefix=prefix, has_pip=False, path=path)

    assert with_pip is not None
    assert with_pip.command == (python, "-m", "pip", "install")
    assert with_uv is not None
    assert with_uv.command == (str(uv), "pip", "install", "--python", python)
    assert find_installer(prefix=prefix, has_pip=False, path=str(tmp_path)) is None


def test_nobody_is_sent_to_the_package_of_somebody_else() -> None:
    texts = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(path for path in (ROOT / "src").rglob("*.py")),
        ROOT / "config.example.yaml",
    ]
    told = re.compile(r"pip install [^\n]{0,20}deerflow")

    found = [path.name for path in texts if path.name != "CHANGELOG.md" and told.search(path.read_text())]
    assert found == []
