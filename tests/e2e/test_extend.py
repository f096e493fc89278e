"""The package that docs/howto/extend.md builds is installed into a venv, and each of its parts is used."""

import json
import re
import site
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest

import deerflow

PAGE = (Path(__file__).parents[2] / "docs/howto/extend.md").read_text("utf-8")
USE = """\
import asyncio, json
from pathlib import Path

from deerflow.app import DeerFlow
from deerflow.client import AsyncDeerFlowClient
from deerflow.config import SettingsSource
from deerflow.subagents.teams import TeamRequest


async def main():
    async with DeerFlow.open(SettingsSource(Path("config.yaml"))) as opened:
        client = AsyncDeerFlowClient(opened)
        task = {"description": "verse", "prompt": "One line.", "subagent_type": "poet"}
        print(json.dumps({
            "faults": [str(fault) for fault in opened.faults],
            "chat": await client.chat("Hello."),
            "tool": await client.chat('/roll_die {"sides": 1}'),
            "agent": await client.chat("/task " + json.dumps(task)),
            "team": await client.run_team(TeamRequest(goal="Say hello.")),
            "fact": (await client.remember("Likes tea."))["content"],
        }))


asyncio.run(main())
"""


def blocks(language: str) -> str:
    return "\n\n".join(re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S))


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of a venv that has DeerFlow and the package of the page."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/*/site-packages")
    roots = [*site.getsitepackages(), str(Path(deerflow.__file__).parents[1])]
    packages.joinpath("installed.pth").write_text("\n".join(roots))
    project = tomllib.loads(blocks("toml"))["project"]
    packages.joinpath("deerflow_example.py").write_text(blocks("python"))
    about = packages / "deerflow_example-1.0.dist-info"
    about.mkdir()
    about.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())])
        for group, entries in project["entry-points"].items()
    ]
    about.joinpath("entry_points.txt").write_text("\n".join(groups))
    return folder / "bin" / "python"


def test_every_part_of_the_example_package_takes_effect(tmp_path: Path, python: Path) -> None:
    tmp_path.joinpath("config.yaml").write_text(blocks("yaml"))

    done = subprocess.run(
        [python, "-c", USE], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["faults"] == []
    assert said["chat"] == "Arr! Hello.\nRule: cite your sources."
    assert "rolled 1 of 1" in said["tool"]
    assert "One line." in said["agent"]
    assert "Say hello." in said["team"]
    assert "Check the work." in said["team"]
    assert "uses a sandbox" in done.stderr
    assert "cannot plan" not in done.stderr
    (memory,) = tmp_path.joinpath("memories").iterdir()
    assert "Likes tea." in memory.read_text()
