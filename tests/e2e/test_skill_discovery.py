"""Skills show up in a running server: listed, found, readable in the sandbox, and problems are reported."""

import os
import subprocess
from pathlib import Path

import httpx
import pytest
from support.gateway import running_gateway
from support.model_server import ScriptedModel, call, text
from support.scene import Scene

JS = Path(__file__).parent / "js"
NPM_SKILLS = JS / "node_modules/skills/bin/cli.mjs"


def write(folder: Path, description: str, body: str = "# Steps\n", name: str = "") -> Path:
    file = folder / "SKILL.md"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name or folder.name}\ndescription: {description}\n---\n{body}")
    return file


def prompt(model: ScriptedModel, request: int = -1) -> str:
    return str(model.requests[request].messages[0]["content"])


def npm_skills_add(source: Path, project: Path, name: str) -> None:
    """Run npm's `skills add` on a local folder, as its users do in a project."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(project / "home"),
        "DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
    }
    command = ["node", "--import", str(JS / "fs_glob.mjs"), str(NPM_SKILLS), "add", str(source), "-s", name]
    subprocess.run(
        [*command, "-a", "universal", "claude-code", "-y"],
        cwd=project,
        env=environment,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )


@pytest.mark.skipif(not NPM_SKILLS.exists(), reason="npm's `skills` is not installed; `make test` does that")
async def test_npm_skills_add_into_a_trusted_project_counts_on_the_next_turn(
    tmp_path: Path, model: ScriptedModel
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write(tmp_path / "source/skills/tidy-notes", "Tidies notes.", "# Tidy\nSort them.\n")
    sections = {"skills": {"trusted_projects": ["project"]}, "sandbox": {"use": "isolated"}}
    with running_gateway(tmp_path, model.base_url, **sections) as gateway:
        scene = Scene(gateway, model)
        model.will_say(text("Hello."))
        await scene.ask()
        before = prompt(model)

        npm_skills_add(tmp_path / "source", project, "tidy-notes")
        path = "/mnt/skills/projects/project/agents/tidy-notes/SKILL.md"
        model.will_say(
            call("read_file", path=path), call("bash", command=f"tail -n 1 {path}"), text("Sorted.")
        )
        seen = await scene.ask("Tidy my notes.")
        after = prompt(model)

        write(project / ".agents/skills/tidy-notes", "Sorts notes by day.")
        model.will_say(text("Again."))
        await scene.ask()
        async with gateway.client() as api:
            listed = (await api.get("/skills")).json()

    assert "<skills>" not in before
    assert f"- tidy-notes [project]: Tidies notes. ({path})" in after
    assert "Sort them." in seen.results[0]["content"]
    assert seen.results[1]["content"].strip() == "Sort them."
    assert f"- tidy-notes [project]: Sorts notes by day. ({path})" in prompt(model)
    assert [(skill["name"], skill["editable"]) for skill in listed["skills"]] == [("tidy-notes", False)]
    assert [problem["level"] for problem in listed["problems"]] == []


async def test_many_skills_are_named_in_the_prompt_and_found_by_search(
    tmp_path: Path, model: ScriptedModel
) -> None:
    for number in range(60):
        write(tmp_path / f"skills/public/filler-{number}", f"Handles matter number {number}.")
    write(tmp_path / "skills/custom/chart-drawing", "Draws bar charts and line charts as pictures. 画图表")
    model.will_say(
        call("find_skill", query="a diagram with bars as a picture"),
        call("find_skill", query="把数据画成图表"),
        text("Found."),
    )
    with running_gateway(tmp_path, model.base_url) as gateway:
        seen = await Scene(gateway, model).ask("Draw my figures.")

    first = prompt(model, 0)
    line = (
        "- chart-drawing [custom, editable]: Draws bar charts and line charts as pictures. 画图表 "
        "(/mnt/skills/custom/chart-drawing/SKILL.md)"
    )
    assert "chart-drawing, filler-0, filler-1, filler-10" in first
    assert "Draws bar charts" not in first
    assert [str(result["content"]).splitlines()[0] for result in seen.results] == [line, line]


async def test_a_skill_that_cannot_be_read_is_reported_and_harms_no_other(
    tmp_path: Path, model: ScriptedModel
) -> None:
    write(tmp_path / "skills/public/good", "Works.")
    write(tmp_path / "skills/custom/good", "Works for me.")
    broken = tmp_path / "skills/custom/silent/SKILL.md"
    broken.parent.mkdir(parents=True)
    broken.write_text("---\nname: silent\nlicense: MIT\n---\n")
    with running_gateway(tmp_path, model.base_url) as gateway:
        async with gateway.client() as api:
            listed = (await api.get("/skills")).json()
            problems = {problem["path"]: problem for problem in listed["problems"]}
            broken.write_text("---\nname: silent\ndescription: 不再沉默\n---\n")
            corrected = (await api.get("/skills")).json()
            one = await api.get("/skills/silent")

    assert [(skill["name"], skill["category"]) for skill in listed["skills"]] == [("good", "custom")]
    assert problems["/mnt/skills/custom/silent/SKILL.md"]["level"] == "skipped"
    assert "'description' is missing" in problems["/mnt/skills/custom/silent/SKILL.md"]["reason"]
    assert problems["/mnt/skills/public/good/SKILL.md"]["level"] == "shadowed"
    assert [problem["level"] for problem in corrected["problems"]] == ["shadowed"]
    assert (one.status_code, one.json()["description"]) == (httpx.codes.OK, "不再沉默")
