"""A file written for DeerFlow 2 means the same here."""

import re
from pathlib import Path

import pytest
from support.project import Project

from deerflow.errors import ConfigError

FILE = Path(__file__).parent / "deerflow2.yaml"
TEXT = FILE.read_text("utf-8")
ENV = {name: f"value-of-{name}" for name in re.findall(r"\$([A-Z_]+)", TEXT)}


def test_it_loads_unchanged(project: Project) -> None:
    loaded = project.load(TEXT, env=ENV)

    settings = loaded.settings
    assert loaded.problems == ()
    assert [model.name for model in settings.models] == [
        "gpt-5",
        "claude",
        "deepseek",
        "ollama",
        "gemini",
        "local-vllm",
    ]
    assert len(settings.tools) == 9
    assert settings.subagents.agents["general-purpose"].max_turns == 160
    assert settings.summarization.trigger[1].type == "fraction"
    assert loaded.paths.database == project.root / ".deer-flow" / "data" / "deerflow.db"


def test_extra_keys_of_models_and_tools_are_passed_on(project: Project) -> None:
    settings = project.load(TEXT, env=ENV).settings

    assert settings.models[0].extra_keys == {
        "api_key": "value-of-OPENAI_API_KEY",
        "max_tokens": 4096,
        "temperature": 0.7,
        "request_timeout": 600.0,
        "max_retries": 2,
    }
    assert settings.tools[0].extra_keys == {"max_results": 5}
    assert settings.sandbox.extra_keys["template"] == "base"
    assert settings.sandbox.environment["PORT"] == "8080"


def test_flat_memory_keys_are_folded(project: Project) -> None:
    memory = project.load(TEXT, env=ENV).settings.memory

    assert (memory.backend_config.debounce_seconds, memory.backend_config.max_facts) == (45, 120)
    assert memory.backend_config.model_extra == {"staleness_age_days": 60, "storage_path": "memory.json"}
    assert memory.model_extra == {}


def test_keys_without_effect_are_named_in_one_warning(project: Project) -> None:
    (warning,) = project.load(TEXT, env=ENV).warnings

    assert "database.checkpoint_channel_mode" in warning
    assert "channels" in warning
    assert "memory.backend_config.staleness_age_days" in warning
    assert "models[0].max_tokens" not in warning


def test_every_model_whose_key_is_missing_falls_away_alone(project: Project) -> None:
    env = {name: value for name, value in ENV.items() if name not in ("OPENAI_API_KEY", "TELEGRAM_BOT_TOKEN")}

    loaded = project.load(TEXT, env=env)

    assert loaded.settings.models[0].name == "claude"
    assert [problem.key for problem in loaded.problems] == [
        "models[0]",
        "acp_agents.codex",
        "channels.telegram",
    ]
    assert "OPENAI_API_KEY" in loaded.problems[0].text


WRONG = [
    ("model: claude-sonnet-4-5", "modle: claude", "models[1].model is missing"),
    ("stream_chunk_timeout: 300", "stream_chunk_timeout: soon", "models[2].stream_chunk_timeout is 'soon'"),
    ("max_words: 6", "max_words: 99", "title.max_words is 99"),
    ("pdf_converter: auto", "pdf_converter: magic", "allowed: auto, pymupdf4llm or markitdown"),
    ("max_suggestions: 3", "max_suggestions: 6", "suggestions.max_suggestions is 6"),
    ("debounce_seconds: 45", "debounce_seconds: 0", "memory.debounce_seconds is 0"),
    ("container_path: /mnt/data", "container_path: mnt", "sandbox.mounts[0].container_path is 'mnt'"),
    (
        "{warn: 60, hard_limit: 100}",
        "{warn: 60}",
        "loop_detection.tool_freq_overrides.bash.hard_limit is missing",
    ),
    ("max_turns: 80", "max_turns: 0", "subagents.agents.bash.max_turns is 0"),
    ("poll_interval_seconds: 5", "poll_interval_seconds: 0", "scheduler.poll_interval_seconds is 0"),
    ("backend: sqlite\n", "backend: oracle\n", "database.backend is 'oracle'"),
    ("name: claude\n", "name: gpt-5\n", "several entries have the name gpt-5"),
    ("log_level: info", "log_level: loud", "log_level is 'loud'"),
]


@pytest.mark.parametrize(("right", "wrong", "said"), WRONG, ids=[said for _, _, said in WRONG])
def test_one_wrong_value_is_named(project: Project, right: str, wrong: str, said: str) -> None:
    assert right in TEXT

    with pytest.raises(ConfigError) as caught:
        project.load(TEXT.replace(right, wrong, 1), env=ENV)

    assert said in str(caught.value)
    assert str(project.config) in str(caught.value)
    assert "value-of-" not in str(caught.value)
