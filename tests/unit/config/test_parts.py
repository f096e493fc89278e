"""An unset variable costs only the part that needs it."""

import pytest
from support.project import Project

from deerflow.config import Settings
from deerflow.config.variables import restore, substitute, variable_in
from deerflow.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("$NAME", "NAME"),
        ("${NAME}", "NAME"),
        ("$_x1", "_x1"),
        ("$", None),
        ("$5", None),
        ("$NAME and more", None),
        ("prefix-$NAME", None),
        ("${NAME", None),
        ("$NAME\n", None),
        ("", None),
        (5, None),
        (None, None),
    ],
)
def test_what_counts_as_a_variable(text: object, variable: str | None) -> None:
    assert variable_in(text) == variable


def test_variables_are_replaced_at_any_depth() -> None:
    value, unset = substitute({"a": ["$X", {"b": "$Y"}], "c": "$X!"}, {"X": "1", "Y": ""})

    assert value == {"a": ["1", {"b": ""}], "c": "$X!"}
    assert unset == []


def test_a_value_that_looks_like_a_variable_is_not_replaced_again() -> None:
    assert substitute(["$A"], {"A": "$B", "B": "no"})[0] == ["$B"]


def test_restoring_keeps_variables_whose_value_did_not_change() -> None:
    raw = {"key": "$KEY", "other": "$KEY", "list": ["$KEY", "x"], "gone": "$KEY"}

    restored = restore({"key": "v", "other": "new", "list": ["v", "y", "z"]}, raw, {"KEY": "v"})

    assert restored == {"key": "$KEY", "other": "new", "list": ["$KEY", "y", "z"]}


def test_one_model_falls_away_and_the_others_stay(project: Project) -> None:
    loaded = project.load(
        "models:\n"
        "  - {name: a, use: 'x:Y', model: m, api_key: $A_KEY, base_url: $A_URL, fallbacks: [b]}\n"
        "  - {name: b, use: 'x:Y', model: m, fallbacks: [a, c]}\n"
        "  - {name: c, use: 'x:Y', model: m}\n"
        "title: {max_words: 3}\n"
    )

    assert [(model.name, model.fallbacks) for model in loaded.settings.models] == [("b", ("c",)), ("c", ())]
    assert loaded.settings.title.max_words == 3
    (problem,) = loaded.problems
    assert problem.key == "models[0]"
    assert "A_KEY and A_URL are not set" in problem.text
    assert "set it in the environment or in .env" in str(problem)


def test_a_section_without_entries_falls_back_to_its_defaults(project: Project) -> None:
    loaded = project.load("title: {max_words: 3, model_name: $TITLE_MODEL}\nuploads: {max_files: 2}")

    assert loaded.settings.title == Settings().title
    assert loaded.settings.uploads.max_files == 2
    assert [problem.key for problem in loaded.problems] == ["title"]


def test_a_sandbox_keeps_its_limits_when_one_of_its_variables_is_unset(project: Project) -> None:
    loaded = project.load(
        "sandbox:\n"
        "  limits: {memory_mb: 64}\n"
        "  environment: {A: $NOT_SET, B: b}\n"
        "  mounts: [{host_path: $NOT_SET, container_path: /mnt/a}, {host_path: /b, container_path: /mnt/b}]\n"
    )

    sandbox = loaded.settings.sandbox
    assert sandbox.limits.memory_mb == 64
    assert sandbox.environment == {"B": "b"}
    assert [mount.host_path for mount in sandbox.mounts] == ["/b"]
    assert [problem.key for problem in loaded.problems] == ["sandbox.environment.A", "sandbox.mounts[0]"]


def test_what_is_switched_off_needs_no_variable(project: Project) -> None:
    loaded = project.load(
        "channels:\n"
        "  slack: {enabled: false, bot_token: $SLACK}\n"
        "  telegram: {enabled: true, bot_token: $TELEGRAM}\n"
        "authorization: {enabled: false, provider: {use: 'x:Y', config: {key: $KEY}}}\n"
    )

    assert [problem.key for problem in loaded.problems] == ["channels.telegram"]


@pytest.mark.parametrize(
    "text",
    [
        "database: {backend: postgres, postgres_url: $NOT_SET}",
        "checkpointer: {type: postgres, connection_string: $NOT_SET}",
        "guardrails: {enabled: true, provider: {use: 'x:Y', config: {key: $NOT_SET}}}",
        "guardrails: {rules: [{tool: bash, pattern: $NOT_SET, action: deny}]}",
        "authorization: {enabled: true, default_role: $NOT_SET}",
        "auth: {local: {allow_registration: $NOT_SET}}",
    ],
)
def test_data_and_doors_never_fall_back_to_defaults(project: Project, text: str) -> None:
    with pytest.raises(ConfigError, match="needs NOT_SET, which is not set"):
        project.load(text)


def test_one_sign_in_provider_falls_away_and_the_rules_beside_it_stay(project: Project) -> None:
    loaded = project.load(
        "auth:\n"
        "  local: {allow_registration: false}\n"
        "  oidc:\n"
        "    providers:\n"
        "      a: {display_name: A, issuer: i, client_id: c, client_secret: $NOT_SET}\n"
        "      b: {display_name: B, issuer: i, client_id: c}\n"
    )

    assert loaded.settings.auth.local.allow_registration is False
    assert list(loaded.settings.auth.oidc.providers) == ["b"]


def test_a_variable_may_stand_for_a_number_or_a_top_level_value(project: Project) -> None:
    settings = project.load(
        "log_level: $LEVEL\ntitle: {max_words: $WORDS}", env={"LEVEL": "debug", "WORDS": "4"}
    ).settings

    assert (settings.log_level, settings.title.max_words) == ("debug", 4)
    assert project.load(env={"WORDS": "4"}).settings.log_level == "info"


def test_a_list_that_is_no_list_is_still_a_clear_error(project: Project) -> None:
    with pytest.raises(ConfigError, match=r"models is \$MODELS .*allowed: a list"):
        project.load("models: $MODELS", env={"MODELS": ""})
    assert project.load(env={}).settings.models == ()
