"""The example file and the reference say what the code does."""

import re
import subprocess
import sys
from pathlib import Path

from support.project import Project

import deerflow
from deerflow.config import ExtensionsSettings, Section, Settings
from deerflow.config.check import sections_in
from deerflow.config.effect import RESTART_ONLY, WAITING
from deerflow.config.environment import VARIABLES

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "config.example.yaml").read_text("utf-8")
PACKAGE = Path(deerflow.__file__).parent


def all_sections(section: type[Section]) -> set[type[Section]]:
    inner = {inner for field in section.model_fields.values() for inner in sections_in(field.annotation)}
    return {section}.union(*(all_sections(one) for one in inner))


def uncommented(text: str) -> str:
    return re.sub(r"^( *)# ", r"\1", re.sub(r"^ *##.*$", "", text, flags=re.M), flags=re.M)


def test_the_generated_files_are_up_to_date() -> None:
    script = ROOT / "scripts" / "generate_reference.py"

    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_begins_with_the_models() -> None:
    first = next(line for line in EXAMPLE.splitlines() if line and not line.startswith("##"))

    assert first == "# models:"


def test_the_example_loads_and_changes_nothing(project: Project) -> None:
    loaded = project.load(EXAMPLE)

    assert (loaded.warnings, loaded.problems) == ((), ())
    assert loaded.settings == Settings()


def test_the_example_loads_with_every_line_uncommented(project: Project) -> None:
    env = dict.fromkeys(re.findall(r"\$([A-Z_]+)", EXAMPLE), "x")

    loaded = project.load(uncommented(EXAMPLE), env=env)

    assert (loaded.warnings, loaded.problems) == ((), ())
    assert len(loaded.settings.models) == 4
    assert loaded.settings.subagents.max_running == Settings().subagents.max_running
    assert loaded.settings.database == Settings().database


def test_the_extensions_example_loads(project: Project) -> None:
    project.write((ROOT / "extensions_config.example.json").read_text("utf-8"), "extensions_config.json")

    loaded = project.load()

    assert set(loaded.extensions.mcp_servers) == {"filesystem", "github", "company"}
    assert loaded.warnings == ()


def test_every_setting_is_described_and_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")

    for section in all_sections(Settings) | all_sections(ExtensionsSettings):
        for name, field in section.model_fields.items():
            assert field.description, f"{section.__name__}.{name} has no description"
            assert field.description.endswith("."), f"{section.__name__}.{name}: {field.description}"
    for name in Settings.model_fields:
        assert re.search(rf"^(## {name}\b|\| `{name}`)", reference, re.M), name


def test_the_lists_of_section_names_name_sections() -> None:
    named = {name.split(".")[0].removesuffix("[]") for name in RESTART_ONLY | set(WAITING)}
    assert named <= set(Settings.model_fields)


def test_every_variable_that_is_read_is_described() -> None:
    read = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r'"((?:DEER_FLOW|GATEWAY)_[A-Z_]+)"', path.read_text("utf-8"))
    }

    assert read - set(VARIABLES) == set(), "describe it in VARIABLES in config/environment.py"
