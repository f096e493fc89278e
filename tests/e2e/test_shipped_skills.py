"""The shipped skills over HTTP: listed in the prompt, read with a reference, run to an artifact."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel, call, text
from support.scene import Scene

SKILLS = Path(__file__).parents[2] / "skills"
CONSULTING = "/mnt/skills/public/consulting-analysis"
PICTURE = "/mnt/user-data/outputs/sensitivity.svg"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, server: ScriptedModel) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("home")
    with running_gateway(
        home, server.base_url, sandbox={"use": "isolated"}, skills={"path": str(SKILLS)}
    ) as running:
        yield running


async def test_a_shipped_skill_is_listed_read_and_run_to_an_artifact(
    gateway: Gateway, server: ScriptedModel
) -> None:
    scene = Scene(gateway, server)
    sizing = f"python3 {CONSULTING}/scripts/sizing.py {CONSULTING}/templates/model.json --svg {PICTURE}"
    server.will_say(
        call("read_file", description="Read the skill", path=f"{CONSULTING}/SKILL.md"),
        call("read_file", description="Choose a structure", path=f"{CONSULTING}/references/frameworks.md"),
        call("bash", description="Size the market", command=sizing),
        call("present_files", filepaths=[PICTURE]),
        text("About 170 million EUR."),
    )

    seen = await scene.ask("How large is the Dutch market for e-cargo bikes?")

    names = [folder.name for folder in (SKILLS / "public").glob("[!.]*")]
    prompt = server.requests[0].system
    assert [name for name in names if f"/mnt/skills/public/{name}/SKILL.md" not in prompt] == []
    skill, reference, sized, _ = (result["content"] for result in seen.results)
    assert "# Consulting analysis" in skill
    assert "# Frameworks" in reference
    assert "| bottom-up | SAM | 174 |" in sized
    assert seen.values["artifacts"] == [PICTURE]
    async with gateway.client() as client:
        drawn = await client.get(f"/threads/{scene.thread}/artifacts{PICTURE}")
    assert drawn.text.startswith("<svg")
