"""Wrong settings: each message names the place, the value and what to do, and never a secret."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.project import Project

from deerflow.app.components import SkillFolderMounts
from deerflow.app.configured import faults_of
from deerflow.errors import ConfigError
from deerflow.models import ModelFactory
from deerflow.sandbox import create_sandbox_provider
from deerflow.skills import skill_folders
from deerflow.storage import open_storage

SECRET = "sk-live-0123456789"
OPENAI = "use: 'langchain_openai:ChatOpenAI', model: m, api_key: " + SECRET
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9)
)

VALUES = [
    ("title:\n  max_words: many", ["title.max_words is 'many' (line 2)", "at least 1, at most 20"]),
    ("title: {max_words: .inf}", ["title.max_words is inf", "allowed: a whole number"]),
    ("metrics: {enabled: maybe}", ["metrics.enabled is 'maybe'", "allowed: true or false"]),
    ("memory: [1]", ["memory is a list (line 1)", "allowed: a mapping"]),
    ("sandbox: local", ["sandbox is 'local' (line 1)", "allowed: a mapping"]),
    ("log_level: loud", ["log_level is 'loud'", "allowed: debug, info, warning"]),
    ("sandbox: {limits: {memory_mb: 2GB}}", ["sandbox.limits.memory_mb is '2GB'", "at least 16"]),
    ("scheduler: {poll_interval_seconds: 0}", ["scheduler.poll_interval_seconds is 0", "at least 1"]),
    ("token_budget: {max_tokens: -1}", ["token_budget.max_tokens is -1", "at least 1000"]),
    ("subagents: {concurrency_range: [4, 2]}", ["subagents.concurrency_range", "[4, 2]", "such as [2, 4]"]),
    (
        "summarization: {trigger: [{type: token, value: 3}]}",
        ["trigger[0].type is 'token'", "tokens, messages"],
    ),
    ("acp_agents: {x: {command: '', description: d}}", ["acp_agents.x.command is ''", "not empty"]),
]
"""Values of a wrong type or beyond a limit."""

MODELS = [
    ("models: {gpt: {use: x}}", ["models is a mapping", "allowed: a list"]),
    ("models: [gpt-5]", ["models[0] is 'gpt-5'", "allowed: a mapping"]),
    (
        "models:\n  - {name: a}",
        ["models[0].use is missing (line 2)", "such as `langchain_openai:ChatOpenAI`"],
    ),
    (f"models: [{{name: '', {OPENAI}}}]", ["models[0].name is ''", "not empty"]),
    (f"models: [{{name: a, {OPENAI}}}, {{name: a, {OPENAI}}}]", ["models (line 1)", "name a", "give each"]),
    (f"models: [{{name: a, {OPENAI}, fallbacks: [b]}}]", ["models[0].fallbacks names 'b'", "there are: a"]),
    (f"models: [{{name: a, {OPENAI}, fallbacks: [a]}}]", ["fallbacks a -> a", "form a cycle"]),
    ("models: [{name: a, use: ChatOpenAI, model: m}]", ["models[a]", "'ChatOpenAI'", "or `module:name`"]),
    ("models: [{name: a, use: 'nope:X', model: m}]", ["models[a]", "package nope", "install"]),
    ("models: [{name: a, use: 'pathlib:Path', model: m}]", ["models[a].use", "'pathlib:Path'", "chat model"]),
    (
        f"models: [{{name: a, {OPENAI}, temperature: hot}}]",
        ["models[a]", "temperature is 'hot'", "valid number"],
    ),
    (f"models: [{{name: a, {OPENAI}, temprature: 1}}]", ["models[a]", "did you mean temperature?"]),
    (
        f"models: [{{name: a, {OPENAI}, suports_vision: 1}}]",
        ["suports_vision (line 1)", "models[0].supports_vision?"],
    ),
    (
        f"models: [{{name: a, {OPENAI}, base_url: 'me:8000'}}]",
        ["models[a].base_url", "'me:8000'", "such as http"],
    ),
    (
        "models: [{name: a, use: 'x:Y', model: m, api_key: $NO_KEY}]",
        ["models[0]", "NO_KEY is not set", ".env"],
    ),
    (
        f"models: [{{name: a, {OPENAI}, base_url: 'https://$LLM_HOST/v1'}}]",
        ["models[0].base_url (line 1)", "$LLM_HOST inside", "whole text into a variable"],
    ),
]
"""Entries of models that cannot be used."""

OTHERS = [
    ("titel: {enabled: true}", ["titel (line 1)", "not a setting", "did you mean title?"]),
    ("sandbox: {use: local, limit: {}}", ["sandbox.limit (line 1)", "did you mean sandbox.limits?"]),
    ("sandbox: {use: isolatd}", ["sandbox.use", "'isolatd'", "one of aio, isolated"]),
    (
        "sandbox: {mounts: [{host_path: /no/such/folder, container_path: /mnt/x}]}",
        ["sandbox.mounts[0].host_path", "/no/such/folder", "make the folder"],
    ),
    (
        "sandbox: {network: {allow: [a.org], allow_cidrs: [10.0.0.0/99]}}",
        ["sandbox.network.allow_cidrs", "'10.0.0.0/99'", "such as 10.1.0.0/16"],
    ),
    (
        "guardrails: {rules: [{tool: bash, pattern: '(', action: deny}]}",
        ["guardrails.rules[0].pattern is '(' (line 1)", "must be a regular expression"],
    ),
    (
        "guardrails: {rules: [{tool: bash, action: forbid}]}",
        ["guardrails.rules[0].action is 'forbid'", "allowed: allow, deny or ask"],
    ),
    (
        "guardrails: {enabled: true, provider: {use: 'nope:Provider'}}",
        ["guardrails.provider", "'nope:Provider'", "correct guardrails.provider"],
    ),
    ("guardrails: {enabled: true}", ["guardrails", "nothing is refused", "add guardrails.rules"]),
    (
        "tools: [{name: a, group: g, use: 'deerflow.tools.files:lss_tool'}]",
        ["tools[a]", "has no lss_tool", "correct the entry"],
    ),
    ("skills: {path: /no/such/folder}", ["skills.path", "/no/such/folder", "make the folder"]),
    ("title: {model_name: nope}", ["title.model_name", "'nope'", "there are: a"]),
    (
        "database: {backend: postgres, postgres_url: $NO_URL}",
        ["config.yaml: database.postgres_url (line 1)", "NO_URL, which is not set", ".env"],
    ),
    ("database: {backend: postgres}", ["database.postgres_url", "such as postgresql://"]),
    ("database: {sqlite_dir: config.yaml}", ["config.yaml/deerflow.db", "set database.sqlite_dir"]),
]
"""Settings that no part of this installation can follow."""

FILES: list[tuple[bytes, list[str]]] = [
    (b"models:\n  - name: a\n   use: b", ["config.yaml line 3 (use:)", "start in the same column"]),
    (b"title: {max_words: 3", ["config.yaml line", "close the bracket"]),
    (b'log_level: "info\ntitle: {}', ["config.yaml line", "close the quote"]),
    (b"models:\n\t- name: a", ["config.yaml line 2", "never tabs"]),
    (b"skills: path: /x", ["config.yaml line 1 (skills:)", "one `key: value` a line"]),
    (b"- a\n- b", ["config.yaml is a list", "such as `log_level: info`"]),
    (b"title: {}\n---\nmemory: {}", ["config.yaml line 2", "take the line `---` out"]),
    (b"title: {}\ntitle: {}", ["config.yaml line 2", "'title'", "keep one"]),
    (b"title: !!python/object/apply:os.system [ls]", ["config.yaml line 1", "os.system", "plain value"]),
    (b"title: &t [*t]", ["config.yaml line 1", "alias must not contain itself", "write the value out"]),
    (BOMB.encode(), ["config.yaml line", "more than 100000 values", "write the few"]),
    (b"title: " + b"[" * 5000, ["config.yaml line 1", "more than 64 levels", "write less"]),
    ("title: {}".encode("utf-16"), ["config.yaml line 1", "UTF-16", "save the file as UTF-8"]),
    (
        "title: {}\nx: caf\u00e9".encode("latin-1"),
        ["config.yaml line 2", "byte 0xe9", "save the file as UTF-8"],
    ),
    (b"\xef\xbb\xbftitle: {max_words: many}", ["title.max_words is 'many' (line 1)"]),
    (b"title: {}\n# \x07", ["config.yaml line 2", "U+0007", "take it out"]),
    (b"# x\n" * 1_300_000, ["config.yaml is larger than 5 MB", "name the right file"]),
]
"""Files that are no settings at all."""

EXTENSIONS = [
    ('{"mcpServers": {', ["extensions_config.json line 1 column 17", "in double quotes"]),
    ('{"skills": {},}', ["extensions_config.json line 1 column 15", "commas only between entries"]),
    ('{\n // mine\n "skills": {}}', ["extensions_config.json line 2", "no comments"]),
    ("[]", ["extensions_config.json", 'such as {"mcpServers": {}}']),
    ('{"skills": NaN}', ["extensions_config.json", "NaN", "write a number"]),
    ('{"skills": {}, "skills": {}}', ["extensions_config.json", "'skills' stands twice", "keep one"]),
    ('{"mcpServers": {\n"a": "npx x"}}', ["mcpServers.a is 'npx x' (line 2)", "allowed: a mapping"]),
    ('{"mcpServers": {"a": {"args": []}}}', ["mcpServers.a (line 1)", "stdio needs `command`"]),
    (
        '{"mcpServers": {"a": {"type": "ws", "url": "ws://x"}}}',
        ["mcpServers.a.type is 'ws'", "stdio, sse or http"],
    ),
    ('{"mcpServers": {"a": {"url": "host:9"}}}', ["mcpServers.a (line 1)", "'host:9'", "begin with http://"]),
    (
        '{"mcpServers": {"a": {"command": "x", "args": "-y"}}}',
        ["mcpServers.a.args is '-y'", "a list of texts"],
    ),
    (
        '{"mcpServers": {"a": {"command": "x", "env": {"T": "$NO_T"}}}}',
        ["mcpServers.a.env.T", "NO_T is not set", ".env"],
    ),
    (
        '{"mcpServers": {"a": {"url": "https://x", "headers": {"Authorization": "Bearer $MY_TOKEN"}}}}',
        ["mcpServers.a.headers.Authorization (line 1)", "$MY_TOKEN inside", "whole text into a variable"],
    ),
    ('{"mcp_server": {}}', ["extensions.mcp_server", "did you mean mcpServers?"]),
    ('{"skills": {"x": true}}', ["skills.x is true", "allowed: a mapping"]),
    (
        '{"middlewares": ["my:Own"]}',
        ["extensions.middlewares[my:Own]", "needs the package my"],
    ),
    ('{"agents": ["json:JSONDecoder"]}', ["extensions.agents[json:JSONDecoder]", "needs a text", "`name`"]),
]
"""What stands wrong in the extensions file."""


async def said_about(project: Project) -> str:
    """Return what is said about the settings, at their loading or by the first part that refuses them."""
    try:
        loaded = project.load()
        if broken := [str(fault) for fault in faults_of(loaded) if fault.is_broken]:
            return "\n".join(broken)
        models = ModelFactory(loaded.settings.models, env=loaded.env)
        for name in models.names:
            models.create(name)
        await models.aclose()
        skills = SkillFolderMounts(skill_folders(loaded, loaded.paths))
        create_sandbox_provider(loaded.settings.sandbox, skills=skills)
        async with open_storage(loaded.settings.database, loaded.paths):
            return "nothing"
    except ConfigError as error:
        return str(error)


def assert_says(said: str, expected: list[str]) -> None:
    assert [words for words in expected if words not in said] == [], said
    assert SECRET not in said


@pytest.mark.parametrize(("text", "expected"), [*VALUES, *MODELS, *OTHERS])
async def test_a_wrong_setting_is_explained(project: Project, text: str, expected: list[str]) -> None:
    project.write(f"{text}\nmodels: [{{name: a, {OPENAI}}}]" if "model_name" in text else text)

    assert_says(await said_about(project), expected)


@pytest.mark.parametrize(("content", "expected"), FILES, ids=[str(expected) for _, expected in FILES])
async def test_a_file_that_is_no_settings_is_explained(
    project: Project, content: bytes, expected: list[str]
) -> None:
    project.config.write_bytes(content)

    assert_says(await said_about(project), expected)


@pytest.mark.parametrize(("text", "expected"), EXTENSIONS)
async def test_a_wrong_extensions_file_is_explained(project: Project, text: str, expected: list[str]) -> None:
    project.write(text, "extensions_config.json")

    assert_says(await said_about(project), expected)


def make_folder(path: Path) -> None:
    path.mkdir()


def make_dead_link(path: Path) -> None:
    path.symlink_to("gone.yaml")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (make_folder, ["config.yaml is a folder", "put a file"]),
        (make_dead_link, ["config.yaml is a link to gone.yaml, which does not exist", "correct or remove"]),
    ],
)
async def test_what_is_no_file_is_explained(
    project: Project, make: Callable[[Path], None], expected: list[str]
) -> None:
    make(project.config)

    assert_says(await said_about(project), expected)


def test_a_file_that_may_not_be_read_is_explained(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("title: {}")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # chmod does not keep root out, and tests may run as root
    with pytest.raises(ConfigError, match=r"config\.yaml cannot be read: Permission denied; let the user"):
        project.load()
