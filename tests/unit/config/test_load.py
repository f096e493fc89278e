"""Where settings are looked for, and what they are made of."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.project import Project

from deerflow.config import Settings, load_settings
from deerflow.errors import ConfigError


def test_without_any_file_everything_is_default(project: Project) -> None:
    loaded = project.load()

    assert loaded.settings == Settings()
    assert loaded.source_path is None
    assert loaded.project_root == project.root
    assert loaded.paths.home == project.root / ".deer-flow"
    assert loaded.paths.database == project.root / ".deer-flow" / "data" / "deerflow.db"
    assert loaded.skills_root == project.root / "skills"
    assert (loaded.warnings, loaded.problems) == ((), ())


def test_our_own_defaults() -> None:
    settings = Settings()

    assert settings.database.backend == "sqlite"
    assert settings.sandbox.use is None
    assert settings.subagents.timeout_seconds == 900
    assert settings.subagents.max_running == 64
    assert settings.subagents.concurrency_range == (2, 4)
    assert settings.subagents.max_total_per_run is None
    assert settings.guardrails.ask_timeout_seconds == 86_400
    assert settings.run_ownership.lease_seconds == 30
    assert settings.sandbox.network.allow == ()


def test_the_search_order(project: Project, tmp_path: Path) -> None:
    above = project.root.parent / "config.yaml"
    named = tmp_path / "named.yaml"
    explicit = tmp_path / "explicit.yaml"
    rooted = tmp_path / "rooted"
    rooted.mkdir()
    env = {"DEER_FLOW_PROJECT_ROOT": str(rooted)}
    for path in (above, project.config, rooted / "config.yaml", named, explicit):
        path.write_text("log_level: debug")

    found = [load_settings(explicit, env={"DEER_FLOW_CONFIG_PATH": str(named)}, cwd=project.root).source_path]
    found.append(project.load(env={"DEER_FLOW_CONFIG_PATH": str(named), **env}).source_path)
    found.append(project.load(env=env).source_path)
    found.append(project.load().source_path)
    project.config.unlink()
    found.append(project.load().source_path)

    assert found == [explicit, named, rooted / "config.yaml", project.config, above]


def test_the_project_is_the_folder_of_its_config(project: Project) -> None:
    above = project.root.parent
    (above / "config.yaml").write_text("log_level: debug")
    (above / ".env").write_text("DEER_FLOW_SKILLS_PATH=abilities")

    loaded = project.load()

    assert loaded.project_root == above
    assert loaded.paths.home == above / ".deer-flow"
    assert loaded.skills_root == above / "abilities"


@pytest.mark.parametrize("variable", ["DEER_FLOW_CONFIG_PATH", "DEER_FLOW_EXTENSIONS_CONFIG_PATH"])
def test_a_named_file_that_is_missing_is_an_error(project: Project, variable: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable} names .*nowhere.* does not exist"):
        project.load(env={variable: "nowhere"})


def test_an_explicit_path_that_is_missing_is_an_error(project: Project) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_settings(Path("nowhere.yaml"), env={}, cwd=project.root)


def test_dotenv_fills_in_but_never_overrides(project: Project) -> None:
    project.write(
        "KEY=from-file\nOTHER='quoted text'\nMIXED=${KEY}-${OTHER}-${ABSENT:-x}\n# c\nexport E=1\n", ".env"
    )

    loaded = project.load("models: [{name: a, use: 'x:Y', model: m, api_key: $KEY}]", env={"KEY": "real"})

    assert loaded.settings.models[0].extra_keys["api_key"] == "real"
    assert loaded.env["OTHER"] == "quoted text"
    assert loaded.env["MIXED"] == "real-quoted text-x"
    assert loaded.env["E"] == "1"


def test_dotenv_may_name_home_and_config(project: Project, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("log_level: debug")
    project.write(f"DEER_FLOW_HOME={tmp_path}/home\nDEER_FLOW_CONFIG_PATH={tmp_path}/other.yaml\n", ".env")

    loaded = project.load()

    assert loaded.settings.log_level == "debug"
    assert loaded.paths.home == tmp_path / "home"


def test_the_process_environment_is_not_touched(project: Project) -> None:
    project.write("DEERFLOW_TEST_VARIABLE=1\n", ".env")
    code = (
        "import os; from deerflow.config import load_settings; before = dict(os.environ); load_settings();"
        "assert dict(os.environ) == before"
    )

    subprocess.run([sys.executable, "-c", code], cwd=project.root, check=True, timeout=60)


def test_broken_dotenv_is_named(project: Project) -> None:
    (project.root / ".env").write_bytes(b"A=\xff\xfe")

    with pytest.raises(ConfigError, match=r"\.env line 1: the byte 0xff is not UTF-8"):
        project.load()


@pytest.mark.parametrize(
    ("configured", "place"),
    [
        (".deer-flow/data", "{home}/data"),
        ("./.deer-flow/data", "{home}/data"),
        ("elsewhere", "{root}/elsewhere"),
        ("/srv/database", "/srv/database"),
    ],
)
def test_the_database_folder(project: Project, tmp_path: Path, configured: str, place: str) -> None:
    home = tmp_path / "home"

    loaded = project.load(f"database: {{sqlite_dir: {configured}}}", env={"DEER_FLOW_HOME": str(home)})

    assert str(loaded.paths.data) == place.format(home=home, root=project.root)


def test_settings_never_show_secrets(project: Project) -> None:
    loaded = project.load(
        "models: [{name: a, use: 'x:Y', model: m, api_key: hunter2, default_headers: {X-Api-Key: hunter2}}]\n"
        "sandbox: {environment: {TOKEN: hunter2}, provisioner_api_key: hunter2}\n"
        "database: {postgres_url: 'postgresql://user:hunter2@host/db'}\n",
        env={"SECRET": "hunter2"},
    )

    assert "hunter2" not in repr(loaded)
    assert "hunter2" not in str(loaded.settings)


def test_settings_cannot_be_changed(project: Project) -> None:
    settings = project.load().settings

    with pytest.raises(ValueError, match="frozen"):
        settings.log_level = "debug"  # type: ignore[misc]


def test_importing_the_settings_brings_no_agent_libraries() -> None:
    code = (
        "import sys; import deerflow.config;"
        "heavy = {'langchain_core', 'langgraph', 'fastapi', 'aiohttp', 'openai'} & set(sys.modules);"
        "assert not heavy, heavy"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
