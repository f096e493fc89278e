"""Prompts list the skills that an agent may use, briefly, and the text changes only with the skills."""

import json
from pathlib import Path

import pytest

from deerflow.agents.prompts import MAX_DESCRIPTION_BYTES, brief
from deerflow.agents.skill_offers import MAX_LISTED, SkillOffers
from deerflow.skills import SkillFolders, Skills
from deerflow.skills.search import SkillSearch


def write(root: Path, name: str, description: str = "Does it.") -> Path:
    file = root / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name.rpartition('/')[2]}\ndescription: {description}\n---\n")
    return file


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("Short.", "Short."),
        ("word " * 60, "word " * 36 + "…"),
        (
            f"Makes slides {'with charts, ' * 9}and much, much more. Use it for slides, a deck or a pitch.",
            f"Makes slides {'with charts, ' * 9}and … Use it for slides, a deck or a pitch.",
        ),
        (f"Makes slides. Use {'very ' * 60}often.", f"Makes slides. Use {'very ' * 32}…"),
        ("把数据画成图表" * 20, "把数据画成图表" * 8 + "把数据画 …"),
    ],
)
def test_a_long_description_keeps_what_the_skill_is_and_when_to_use_it(
    description: str, expected: str
) -> None:
    assert brief(description.strip()) == expected
    assert len(expected.encode()) <= MAX_DESCRIPTION_BYTES + 8


def test_an_agent_is_offered_what_it_may_use_and_the_same_text_until_that_changes(tmp_path: Path) -> None:
    skills = Skills(SkillFolders(tmp_path, users=lambda user: tmp_path / user))
    write(tmp_path, "public/one")
    write(tmp_path, "public/two")
    write(tmp_path, "ann/mine")
    offers = SkillOffers(skills)

    everything, named = offers.get(), offers.get(names=("two", "unknown"))
    of_ann = offers.get("ann")
    write(tmp_path, "public/two", "Does it well.")
    skills.rescan()

    assert [line.split()[1] for line in everything.section.splitlines() if line[0] == "-"] == ["one", "two"]
    assert "- two [built-in]: Does it. (/mnt/skills/public/two/SKILL.md)" in named.section
    assert ("- one" in named.section, offers.get(names=()).section) == (False, "")
    assert "- mine [custom, editable]" in of_ann.section
    assert offers.get("ann") is of_ann
    assert "Does it well." in offers.get().section
    assert (everything.tools, named.tools) == ((), ())


def test_above_fifty_skills_only_agents_that_cannot_search_are_told_more_than_names(tmp_path: Path) -> None:
    for number in range(MAX_LISTED + 1):
        write(tmp_path, f"public/skill-{number:02}")
    offers = SkillOffers(Skills(tmp_path))

    names, described = offers.get(), offers.get(can_search=False)

    assert ([tool.name for tool in names.tools], described.tools) == (["find_skill"], ())
    assert "skill-00, skill-01" in names.section
    assert "- skill-00 [built-in]: Does it." in described.section
    assert SkillOffers(Skills(tmp_path), is_deferred=True).get(names=["skill-07"]).tools
    assert "Does it." in offers.get(names=["skill-07"]).section


async def test_a_search_finds_only_what_is_allowed_and_sees_changes(tmp_path: Path) -> None:
    skills = Skills(tmp_path, disabled={"off"})
    write(tmp_path, "public/maps", "Draws maps of towns.")
    write(tmp_path, "public/off", "Draws maps of seas.")
    write(tmp_path, "public/letters", "Writes letters. 写信")
    search = SkillSearch(skills)

    found = [skill.name for skill in await search.find("draw maps", user="default")]
    allowed = await search.find("draw maps", user="default", names=["letters"])
    chinese = [skill.name for skill in await search.find("请帮我写一封信", user="default")]
    write(tmp_path, "public/letters", "Draws maps of moons.")
    skills.refresh()

    assert (found[0], "off" in found) == ("maps", False)
    assert "maps" not in [skill.name for skill in allowed]
    assert chinese[0] == "letters"
    assert {skill.name for skill in await search.find("maps of moons", user="default")} >= {"letters", "maps"}


async def test_a_search_knows_the_requests_of_a_skills_own_cases(tmp_path: Path) -> None:
    for name, cases in (
        ("chronometer", '{"triggers": {"should": ["When does the tram leave?", "末班车几点"]}}'),
        ("broken", '{"triggers": 7}'),
        ("plain", None),
    ):
        folder = write(tmp_path, f"public/{name}", "Handles requests.").parent
        if cases is not None:
            (folder / "evals").mkdir()
            (folder / "evals" / "evals.json").write_text(cases)
    search = SkillSearch(Skills(tmp_path))

    for need in ("tram departure: when does it leave", "今晚末班车几点开"):
        assert (await search.find(need, user="default"))[0].name == "chronometer"


async def test_a_search_sees_changed_requests_within_limits_and_follows_no_link(tmp_path: Path) -> None:
    search = SkillSearch(Skills(tmp_path))
    maps, linked = (
        write(tmp_path, f"public/{name}").parent / "evals" / "evals.json" for name in ("maps", "linked")
    )
    for file in (maps, linked):
        file.parent.mkdir()
    (tmp_path / "outside.json").write_text(json.dumps({"triggers": {"should": ["The kettle leaks"]}}))
    linked.symlink_to(tmp_path / "outside.json")

    async def found_after(should: list[str], need: str) -> list[str]:
        maps.write_text(json.dumps({"triggers": {"should": should}}))
        return [skill.name for skill in await search.find(need, user="default")]

    assert (await found_after(["The kettle leaks"], "my kettle leaks again"))[0] == "maps"
    assert "linked" not in await found_after(["x"], "kettle")
    assert "maps" not in await found_after(["x" * 200 + " umbrella"], "umbrella")
    assert "maps" not in await found_after(["x"] * 20 + ["umbrella"], "umbrella")
    assert (await found_after(["Where is my umbrella?"], "umbrella"))[0] == "maps"
