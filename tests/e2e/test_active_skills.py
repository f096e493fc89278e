"""Skills over HTTP: activated by slash or by reading, with the tools they allow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gateway import Gateway, running_gateway, write_config
from support.model_server import ScriptedModel, call, calls, text
from support.scene import Scene, Seen

from deerflow.skills import package_digest

ROOT = "/mnt/skills/public"
OUTPUTS = "/mnt/user-data/outputs"
CHART = f"{ROOT}/chart/SKILL.md"
SKILLS = {
    "chart/SKILL.md": """\
---
name: chart
description: Draws charts.
version: 1.2.0
allowed-tools: Read Bash
---
# Charts

Read references/colours.md before you draw anything at all.
Then run scripts/draw.py with a name.
""",
    "chart/references/colours.md": "Use green, and nothing else.\n",
    "chart/scripts/draw.py": "import sys\nopen(sys.argv[1], 'w').write('<svg/>')\nprint('drawn')\n",
    "chart/evals/evals.json": "{}",
    "careful/SKILL.md": """\
---
name: careful
description: Looks only.
allowed-tools: read_file Bash(git status:*)
---
Look at everything with great care, then answer.
Never change anything that you were given.
""",
    "big/SKILL.md": """\
---
name: big
description: Needs others.
dependencies: [small, big, absent]
---
The big steps.
""",
    "small/SKILL.md": "---\nname: small\ndescription: Helps.\ndependencies: [big]\n---\nThe small steps.\n",
    "报告生成/SKILL.md": "---\nname: 报告生成\ndescription: 写报告。\n---\n先列提纲。\n",
    "retired/SKILL.md": "---\nname: retired\ndescription: Was useful once.\n---\nOld steps.\n",
}
SETTINGS: dict[str, Any] = {
    "sandbox": {"use": "isolated"},
    "extensions": {"skills": {"retired": {"enabled": False}}},
    "agents_api": {"enabled": True},
}
SHORT = {"trigger": {"type": "messages", "value": 9}, "keep": {"type": "messages", "value": 2}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, server: ScriptedModel) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("home")
    write_skills(home, SKILLS)
    with running_gateway(home, server.base_url, **SETTINGS) as running:
        yield running


@pytest.fixture
def scene(gateway: Gateway, server: ScriptedModel) -> Scene:
    server.reset()
    return Scene(gateway, server)


def write_skills(home: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        file = home / "skills" / "public" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def asked(scene: Scene, number: int = -1) -> str:
    """Return the messages of a request, as text."""
    messages = scene.model.requests[number].body["messages"]
    return "\n\n".join(f"{message['role']}: {_text(message['content'])}" for message in messages)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content or ())


def activated(seen: Seen) -> list[tuple[str, str]]:
    return [(one["name"], one["activated_by"]) for event in seen.custom("skills") for one in event["skills"]]


async def last_run(scene: Scene) -> dict[str, Any]:
    runs: list[dict[str, Any]] = (await scene.request("GET", "/runs")).json()
    return runs[0]


async def test_a_skill_is_matched_read_and_its_script_makes_an_artifact(scene: Scene) -> None:
    draw = f"python3 {ROOT}/chart/scripts/draw.py {OUTPUTS}/chart.svg"
    scene.model.will_say(
        call("read_file", path=CHART),
        call("read_file", path=f"{ROOT}/chart/references/colours.md"),
        call("bash", command=draw),
        call("present_files", filepaths=[f"{OUTPUTS}/chart.svg"]),
        text("Here is the chart."),
    )

    seen = await scene.ask("Draw a chart.")

    assert f"chart: Draws charts. ({CHART})" in asked(scene, 0) or CHART in asked(scene, 0)
    assert [result["content"].strip()[-5:] for result in seen.results[1:3]] == ["else.", "drawn"]
    assert seen.values["artifacts"] == [f"{OUTPUTS}/chart.svg"]
    assert activated(seen) == [("chart", "read")]
    (used,) = (await last_run(scene))["skills"]
    digest = package_digest(scene.gateway.home / "skills" / "public" / "chart")
    assert used == {"name": "chart", "version": "1.2.0", "digest": digest, "activated_by": "read"}


async def test_a_slash_gives_the_model_the_skill_and_leaves_the_message_alone(scene: Scene) -> None:
    scene.model.will_say(text("Drawn."), text("Yes."))

    seen = await scene.ask("/chart of rainfall")
    again = await scene.ask("Is it green?")

    assert [message["content"] for message in seen.messages] == ["/chart of rainfall", "Drawn."]
    assert activated(seen) == [("chart", "slash")]
    assert seen.values["skill_context"] == [CHART]
    assert "skill_texts" not in seen.values
    first, second = asked(scene, 0), asked(scene, 1)
    assert '<active_skill name="chart"' in first
    assert "version: 1.2.0" not in first
    assert f"- {ROOT}/chart/scripts/draw.py" in first
    assert "evals.json" not in first
    assert first.index("# Charts") < first.index("/chart of rainfall")
    assert second.startswith(first), "what was sent once stays the same, so that it can be cached"
    assert (activated(again), (await last_run(scene))["skills"]) == ([], [])


async def test_names_in_other_scripts_are_activated(scene: Scene) -> None:
    scene.model.will_say(text("好的。"))

    assert activated(await scene.ask("/报告生成 关于鹿")) == [("报告生成", "slash")]
    assert "先列提纲。" in asked(scene)


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("/chrat of rain", "There is no skill “chrat”. Did you mean /chart?"),
        ("/retired please", "The skill “retired” is switched off"),
        ("/chrat 画雨量图", "没有名为“chrat”的技能。您是否想用 /chart？"),
        ("/zzz", "There is no skill “zzz”. The skills are: /big, /careful, /chart"),
    ],
)
async def test_a_skill_that_cannot_be_used_is_answered_without_a_model(
    scene: Scene, message: str, answer: str
) -> None:
    seen = await scene.ask(message)

    assert answer in seen.answer
    assert scene.model.requests == []


@pytest.mark.parametrize(
    "message", ["/etc/hosts is odd", "/tmp", "/help", "/bootstrap me", "/zzz or not?", "a /chart"]
)
async def test_other_messages_with_a_slash_are_plain_text(scene: Scene, message: str) -> None:
    scene.model.will_say(text("Fine."))

    seen = await scene.ask(message)

    assert (seen.answer, activated(seen)) == ("Fine.", [])
    assert "<active_skill" not in asked(scene)


@pytest.mark.parametrize(
    "read",
    [
        call("read_file", path=f"{ROOT}/careful/SKILL.md"),
        call("bash", command=f"cat {ROOT}/careful/SKILL.md"),
        call("bash", command=f"cd {ROOT}/careful && tail -n +6 SKILL.md"),
        call("bash", command="cat /mnt/skills/*/care*/SKILL.md"),
        call(
            "python", code="import glob\nprint(open(glob.glob('/mnt/*/public/careful/SKILL.md')[0]).read())"
        ),
    ],
)
async def test_tools_outside_of_the_allowed_ones_are_refused(scene: Scene, read: Any) -> None:
    scene.model.will_say(
        read,
        calls(
            call("write_file", path="/mnt/user-data/workspace/a.txt", content="x"),
            call("bash", command="git status --short; rm -rf /mnt/user-data/workspace"),
            call("bash", command="git status --short || true"),
            call("python", code="print(1)"),
            call("ls", path=ROOT),
        ),
        text("Looked."),
        call("bash", command="echo free"),
        text("Done."),
    )

    seen = await scene.ask("Look.")
    after = await scene.ask("Now go on.")

    written, removed, status, python, listed = seen.results[1:]
    assert activated(seen) == [("careful", "read")]
    assert "write_file was not called: the active skill careful allows only these tools" in written["content"]
    assert "read_file, bash(git status:*)" in written["content"]
    assert "substitutions and redirections" in removed["content"]
    assert [one["status"] for one in (written, removed, status, python, listed)] == [
        *("error", "error", "error", "error", "success"),
    ]
    assert after.results[-1]["content"].strip() == "free", "the user's next message ends the skill"


async def test_a_reply_to_a_question_continues_the_skill(scene: Scene) -> None:
    scene.model.will_say(
        call("ask_clarification", question="Which one?", clarification_type="missing_info"),
        call("bash", command="echo no"),
        text("As you like."),
    )

    await scene.ask("/careful now")
    seen = await scene.ask("The first.")

    assert "the active skill careful allows only" in seen.results[-1]["content"]


@pytest.mark.parametrize("has_slash", [True, False])
async def test_dependencies_come_along_once_and_missing_ones_are_said(scene: Scene, has_slash: bool) -> None:
    if not has_slash:
        scene.model.will_say(calls(call("read_file", path=f"{ROOT}/big/SKILL.md"), call("ls", path=ROOT)))
    scene.model.will_say(text("Done."))

    seen = await scene.ask("/big job" if has_slash else "Do a big job.")

    assert activated(seen) == [("small", "dependency"), ("big", "slash" if has_slash else "read")]
    assert asked(scene).count("The small steps.") == 1
    assert "missing here: absent" in asked(scene)
    assert {one["name"] for one in (await last_run(scene))["skills"]} == {"big", "small"}


@pytest.mark.parametrize("has_slash", [True, False])
async def test_an_active_skill_survives_a_summary(scene: Scene, has_slash: bool) -> None:
    scene.model.on("Write one summary", text("They talked."))
    if not has_slash:
        scene.model.will_say(call("read_file", path=CHART))
    folders = ("", "/chart", "/big", "/small", "/careful")
    scene.model.will_say(*(call("ls", path=f"{ROOT}{folder}") for folder in folders))
    scene.model.will_say(call("glob", path="/mnt/user-data/workspace", pattern="*"), text("Done."))
    write_config(scene.gateway.home, scene.model.base_url, **SETTINGS, summarization=SHORT)

    seen = await scene.ask("/chart" if has_slash else "Draw.")

    write_config(scene.gateway.home, scene.model.base_url, **SETTINGS)
    summarised = asked(scene)
    assert "They talked." in summarised
    assert summarised.count("# Charts") == 1
    assert "the active skill chart allows only" in seen.results[-1]["content"]
    assert [one["name"] for one in seen.values["active_skills"]] == ["chart"]


async def test_a_sub_agent_has_its_own_active_skills(scene: Scene) -> None:
    scene.model.on(
        "the part",
        call("read_file", path=f"{ROOT}/careful/SKILL.md"),
        call("python", code="print(1)"),
        text("Part done."),
    )
    task = call("task", description="Part", prompt="/big the part", subagent_type="general-purpose")
    scene.model.on("Delegate", task, call("python", code="print(40 + 2)"), text("All done."))

    seen = await scene.ask("Delegate it.", subagent_enabled=True)

    assert activated(seen) == [("careful", "read")]
    assert seen.custom("skills")[0]["task_id"]
    assert seen.results[-1]["content"].strip() == "42"
    assert any(
        "the active skill careful allows only" in str(request.body) for request in scene.model.requests
    )
    assert [one["name"] for one in (await last_run(scene))["skills"]] == ["careful"]


async def test_a_custom_agent_activates_only_its_skills(scene: Scene) -> None:
    async with scene.gateway.client() as api:
        await api.post("/agents", json={"name": "poet", "skills": ["careful"]})
    scene.model.will_say(call("bash", command=f"cat {CHART}"), text("Read."))

    refused = await scene.ask("/chart of rain", agent_name="poet")
    read = await scene.ask("Read it.", agent_name="poet")

    assert refused.answer == "This agent may not use the skill “chart”."
    assert activated(read) == []
