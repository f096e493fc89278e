"""What people are told about wrong values."""

import pytest
from support.project import Project

from deerflow.config import Settings
from deerflow.errors import ConfigError


def complaint(project: Project, text: str, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        project.load(text, env=env)
    return str(caught.value)


def test_all_wrong_values_are_named_with_line_value_and_what_is_allowed(project: Project) -> None:
    said = complaint(
        project,
        "title:\n  max_words: 0\ndatabase:\n  backend: oracle\nsubagents:\n  concurrency_range: [4, 2]\n",
    )

    in_order = "[4, 2] must be two numbers from 1 up, the smaller first, such as [2, 4]"
    assert said.splitlines() == [
        f"{project.config}:",
        "  title.max_words is 0 (line 2); allowed: a whole number, at least 1, at most 20",
        "  database.backend is 'oracle' (line 4); allowed: memory, sqlite or postgres",
        f"  subagents.concurrency_range (line 6): {in_order}",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sandbox: local", "sandbox is 'local' (line 1); allowed: a mapping"),
        ("models: {name: a}", "models is a mapping (line 1); allowed: a list of mappings"),
        ("models: [null]", "models[0] is empty (line 1); allowed: a mapping"),
        (
            "sandbox: {environment: {DEBUG: [1]}}",
            "sandbox.environment.DEBUG is a list (line 1); allowed: text",
        ),
        (
            "uploads: {max_files: 1.5}",
            "uploads.max_files is 1.5 (line 1); allowed: a whole number, at least 1",
        ),
        (
            "runs: {timeout_seconds: .inf}",
            "runs.timeout_seconds is inf (line 1); allowed: a number, more than 0",
        ),
        ("runs: {timeout_seconds: .nan}", "runs.timeout_seconds is nan"),
        ("title: {enabled: perhaps}", "title.enabled is 'perhaps' (line 1); allowed: true or false"),
        ("subagents: {concurrency_range: [2]}", "concurrency_range[1] is missing (line 1): a whole number"),
        ("subagents: {concurrency_range: 3}", "allowed: a list of 2 whole numbers"),
        (
            "skills: {container_path: ''}",
            "skills.container_path is '' (line 1); allowed: text, starting with /",
        ),
        ("guardrails: {rules: [{tool: bash, pattern: '(', action: ask}]}", "must be a regular expression"),
        ("guardrails: {rules: [{tool: bash, action: maybe}]}", "allowed: allow, deny or ask"),
        ("acp_agents: {x: {command: run}}", "acp_agents.x.description is missing"),
    ],
)
def test_the_message_fits_the_mistake(project: Project, text: str, said: str) -> None:
    assert said in complaint(project, text)


def test_unknown_fallbacks_are_named(project: Project) -> None:
    said = complaint(project, "models: [{name: a, use: 'x:Y', model: m, fallbacks: [b]}]")

    assert "models[0].fallbacks names 'b'; there are: a" in said


def test_secrets_are_never_shown(project: Project) -> None:
    project.write(
        "sandbox: {provisioner_api_key: [hunter2-list], environment: {PASSWORD: {a: hunter2-map}}}\n"
        "database: {postgres_url: [postgresql://user:hunter2@host/db]}\n"
        "title: {max_words: $WORDS, model_name: [$TOKEN]}\n"
    )

    said = complaint(project, project.config.read_text(), env={"WORDS": "hunter2-words", "TOKEN": "hunter2"})

    assert "hunter2" not in said
    assert "title.max_words is $WORDS" in said


def test_a_long_value_is_cut(project: Project) -> None:
    said = complaint(project, f"log_level: {'x' * 100_000}")

    assert len(said) < 400


def test_a_flood_of_mistakes_is_cut(project: Project) -> None:
    said = complaint(project, "models:\n" + "  - {name: a}\n" * 1000)

    assert len(said.splitlines()) < 60
    assert "and 1950 more" in said


def test_the_index_is_the_files_even_when_entries_before_fell_away(project: Project) -> None:
    said = complaint(
        project,
        "models:\n"
        "  - {name: a, use: 'x:Y', model: m, api_key: $NOT_SET}\n"
        "  - {name: b, use: 'x:Y', model: m}\n"
        "  - {name: c, use: 'x:Y', model: m, context_window: 0}\n",
        env={},
    )

    assert "models[2].context_window is 0 (line 4)" in said


def test_an_empty_key_means_its_default(project: Project) -> None:
    settings = project.load(
        "sandbox:\nmodels:\ntitle:\n  max_words:\nmemory:\nsubagents: {agents: }\n"
    ).settings

    assert settings == Settings()


def test_empty_stays_empty_where_it_has_a_meaning(project: Project) -> None:
    settings = project.load("database: {command_timeout: null}").settings

    assert settings.database.command_timeout is None


def test_a_misspelt_section_gets_a_guess(project: Project) -> None:
    (warning,) = project.load("modles: []\nsandbox: {}\ntitle: {max_wrds: 3}\nzzz: 1").warnings

    assert "modles (line 1; did you mean models?)" in warning
    assert "title.max_wrds (line 3; did you mean title.max_words?)" in warning
    assert "zzz (line 4)" in warning


def test_a_newer_layout_is_said(project: Project) -> None:
    (warning,) = project.load("config_version: 99").warnings

    assert "config_version: is 99" in warning


@pytest.mark.parametrize("level", ["INFO", "Warn", " debug "])
def test_log_levels_are_read_in_any_spelling(project: Project, level: str) -> None:
    assert project.load(f"log_level: '{level}'").settings.log_level in ("info", "warning", "debug")


@pytest.mark.parametrize(
    ("old", "backend", "where"),
    [
        ("{type: memory}", "memory", None),
        ("{type: sqlite, connection_string: store/checkpoints.db}", "sqlite", "store"),
        ("{type: sqlite, connection_string: ':memory:'}", "memory", None),
        ("{type: sqlite}", "sqlite", None),
    ],
)
def test_a_checkpointer_is_the_older_form_of_the_database(
    project: Project, old: str, backend: str, where: str | None
) -> None:
    loaded = project.load(f"checkpointer: {old}")

    assert loaded.settings.database.backend == backend
    assert loaded.paths.data == (project.root / where if where else project.root / ".deer-flow" / "data")


def test_postgres_comes_over_from_a_checkpointer_and_database_wins_over_it(project: Project) -> None:
    old = "checkpointer: {type: postgres, connection_string: 'postgresql://h/d'}\n"

    assert project.load(old).settings.database.postgres_url == "postgresql://h/d"
    assert project.load(old + "database: {backend: memory}").settings.database.backend == "memory"
