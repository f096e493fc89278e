"""`extensions_config.json`: read, merged and written back."""

import json
import stat
import threading
from pathlib import Path

import pytest
from support.project import Project

from deerflow.config import ExtensionsSettings, McpServerSettings, SettingsSource, save_extensions
from deerflow.errors import ConfigError


def test_servers_and_skills_are_read(project: Project) -> None:
    project.write(
        json.dumps(
            {
                "mcpServers": {
                    "files": {"command": "npx", "args": ["-y", "x"], "env": {"ROOT": "$ROOT"}},
                    "web": {"type": "http", "url": "https://mcp.example.org", "headers": {"A": "$UNSET"}},
                },
                "skills": {"podcast": {"enabled": False}},
                "mcpInterceptors": ["x.y:build"],
                "somethingElse": 1,
            }
        ),
        "extensions_config.json",
    )

    loaded = project.load(env={"ROOT": "/srv"})

    extensions = loaded.extensions
    assert extensions.mcp_servers["files"].env == {"ROOT": "/srv"}
    assert extensions.mcp_servers["web"].headers == {"A": ""}
    assert extensions.skills["podcast"].enabled is False
    assert loaded.problems == ()
    unused, unknown, empty = loaded.warnings
    assert unknown == "extensions.somethingElse: is not a setting; take it out"
    assert unused == "extensions.mcpInterceptors: has no effect in this version; take it out"
    assert "extensions.mcpServers.web.headers.A: is empty: UNSET is not set; set UNSET in" in empty


def test_the_older_name_is_found_and_the_newer_one_wins(project: Project) -> None:
    project.write('{"skills": {"old": {"enabled": false}}}', "mcp_config.json")
    assert "old" in project.load().extensions.skills

    project.write('{"skills": {"new": {"enabled": false}}}', "extensions_config.json")
    assert list(project.load().extensions.skills) == ["new"]


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_skill_states_of_older_guides_are_read_beside_it(project: Project, is_wrapped: bool) -> None:
    states = {"podcast": {"enabled": False}, "notes": False, "maps": True}
    project.write('{"skills": {"notes": {"enabled": true}}}', "extensions_config.json")
    project.write(json.dumps({"skills": states} if is_wrapped else states), "skills_state_config.json")

    skills = project.load().extensions.skills

    assert {name: state.enabled for name, state in skills.items()} == {
        "podcast": False,
        "notes": True,  # the newer file
        "maps": True,
    }
    project.write('{"skills": {"podcast": "off"}}', "skills_state_config.json")
    with pytest.raises(ConfigError, match=r"skills_state_config.json \(line 1\): podcast: write true"):
        project.load()


def test_config_yaml_wins_key_by_key(project: Project) -> None:
    project.write('{"skills": {"a": {}}, "middlewares": ["x:Y"]}', "extensions_config.json")

    loaded = project.load("extensions: {skills: {b: {enabled: false}}}")

    assert list(loaded.extensions.skills) == ["b"]
    assert loaded.extensions.middlewares == ("x:Y",)
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ({"command": "x"}, "stdio"),
        ({"url": "https://x"}, "http"),
        ({"transport": "sse", "url": "https://x"}, "sse"),
        ({"type": "streamable-http", "url": "https://x"}, "http"),
        ({"transport": "streamable_http", "url": "https://x"}, "http"),
        ({"type": "HTTP", "url": "https://x"}, "http"),
        ({"enabled": False}, "stdio"),
        ({"type": None, "command": "x", "oauth": None, "session_init_timeout": None}, "stdio"),
    ],
)
def test_the_spellings_of_a_servers_type(server: dict[str, object], kind: str) -> None:
    assert McpServerSettings.model_validate(server).type == kind


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1"),
        ("[]", "the top level must be an object"),
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' + "[" * 100 + "]" * 100 + "}", "more than 64 levels"),
        (
            '{"mcpServers": {"x": {"type": "carrier-pigeon", "url": "u"}}}',
            "mcpServers.x.type is 'carrier-pigeon'",
        ),
        ('{"mcpServers": {"x": {"type": "stdio"}}}', "a server of type stdio needs `command`"),
        ('{"mcpServers": {"x": {"type": "sse"}}}', "a server of type sse needs `url`"),
        ('{"mcpServers": []}', "mcpServers is a list (line 1); allowed: a mapping of names to mappings"),
        (
            '{"mcpServers": {"x": {"command": "c", "env": {"KEY": ["hunter2"]}}}}',
            "mcpServers.x.env.KEY is a list",
        ),
    ],
)
def test_what_is_wrong_is_named(project: Project, text: str, said: str) -> None:
    path = project.write(text, "extensions_config.json")

    with pytest.raises(ConfigError) as caught:
        project.load()

    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_an_empty_file_says_nothing(project: Project) -> None:
    project.write(" \n", "extensions_config.json")

    assert project.load().extensions == ExtensionsSettings()


def test_saving_keeps_variables_and_unknown_keys(project: Project) -> None:
    path = project.write(
        json.dumps(
            {
                "$schema": "x",
                "mcpServers": {
                    "a": {"command": "c", "env": {"KEY": "$KEY"}, "note": "mine", "args": ["1"]},
                    "b": {"command": "c"},
                },
                "skills": {"s": {"enabled": True, "why": "because"}},
            }
        ),
        "extensions_config.json",
    )

    settings = save_extensions(
        path,
        {
            "mcpServers": {
                "a": {"command": "d", "env": {"KEY": "secret", "NEW": "n"}},
                "c": {"command": "e"},
            },
            "skills": {"s": {"enabled": False}},
        },
        env={"KEY": "secret"},
    )

    assert json.loads(path.read_text()) == {
        "$schema": "x",
        "mcpServers": {
            "a": {"note": "mine", "command": "d", "env": {"KEY": "$KEY", "NEW": "n"}},
            "c": {"command": "e"},
        },
        "skills": {"s": {"why": "because", "enabled": False}},
    }
    assert settings.mcp_servers["a"].env["KEY"] == "secret"


def test_an_unset_variable_survives_saving(project: Project) -> None:
    path = project.write(
        '{"mcpServers": {"a": {"command": "c", "env": {"K": "$K"}}}}', "extensions_config.json"
    )

    save_extensions(path, {"mcpServers": {"a": {"command": "d", "env": {"K": ""}}}}, env={})

    assert json.loads(path.read_text())["mcpServers"]["a"]["env"] == {"K": "$K"}


def test_a_wrong_value_is_not_written(project: Project) -> None:
    path = project.write('{"skills": {}}', "extensions_config.json")

    with pytest.raises(ConfigError):
        save_extensions(path, {"mcpServers": {"a": {"type": "pigeon"}}}, env={})

    assert path.read_text() == '{"skills": {}}'
    assert list(project.root.iterdir()) == [path]


def test_a_new_file_is_private_and_an_old_one_keeps_its_mode(project: Project) -> None:
    new = project.root / "sub" / "extensions_config.json"
    save_extensions(new, {"skills": {}}, env={})
    old = project.write("{}", "extensions_config.json")
    old.chmod(0o640)
    save_extensions(old, {"skills": {}}, env={})

    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_a_link_stays_a_link(project: Project, tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("{}")
    project.extensions.symlink_to(real)

    save_extensions(project.extensions, {"skills": {"a": {"enabled": False}}}, env={})

    assert project.extensions.is_symlink()
    assert "a" in json.loads(real.read_text())["skills"]


def test_a_place_that_cannot_be_written_is_a_clear_error(project: Project) -> None:
    project.write("a file", "not-a-folder")

    with pytest.raises(ConfigError, match="cannot be"):
        save_extensions(project.root / "not-a-folder" / "extensions_config.json", {"skills": {}}, env={})


def test_many_writers_at_once_lose_nothing_and_readers_never_see_half_a_file(project: Project) -> None:
    source = project.source()
    seen: list[object] = []
    done = threading.Event()

    def write(number: int) -> None:
        source.save_extensions({f"key{number}": number})

    def read() -> None:
        while not done.is_set():
            if project.extensions.exists():
                seen.append(json.loads(project.extensions.read_text()))

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()

    assert json.loads(project.extensions.read_text()) == {f"key{number}": number for number in range(20)}


def test_editors_of_several_processes_lose_nothing_of_each_other(project: Project) -> None:
    def edit(source: SettingsSource, name: str) -> None:
        for number in range(10):
            key = f"{name}{number}"
            source.edit_extensions(lambda known, key=key: {"skills": {**known.get("skills", {}), key: {}}})

    # Each has locks of its own in this process, as if it were another one.
    editors = [threading.Thread(target=edit, args=(project.source(), name)) for name in "abcd"]
    for thread in editors:
        thread.start()
    for thread in editors:
        thread.join()

    skills = json.loads(project.extensions.read_text())["skills"]
    assert sorted(skills) == sorted(f"{name}{number}" for name in "abcd" for number in range(10))
