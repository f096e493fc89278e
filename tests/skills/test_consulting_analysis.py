"""The scripts of the skill `consulting-analysis` on models and issue trees."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

SKILL = Path(__file__).parents[2] / "skills" / "public" / "consulting-analysis"
MODEL = json.loads((SKILL / "templates" / "model.json").read_text())
TREE = """\
# Entry

- Should we enter the Dutch market in 2027?
  - Is the market attractive?
    - How large is it? -> size in two ways [high]
    - Do rivals leave room? -> compare the five largest [medium]
  - Can we win?
    - Is our cost lower? -> teardown of two bikes [low]
    - 客户愿意换品牌吗？ -> 访谈二十位客户 [high]
"""


def run(folder: Path, script: str, *arguments: object, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(SKILL / "scripts" / script), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code == 2 else done.stdout


def size(folder: Path, model: Any, *arguments: object, code: int = 0) -> str:
    (folder / "model.json").write_text(json.dumps(model))
    return run(folder, "sizing.py", "model.json", *arguments, code=code)


def test_the_template_is_evaluated_with_range_and_sensitivity(tmp_path: Path) -> None:
    result = json.loads(size(tmp_path, MODEL, "--format", "json", "--svg", "out/s.svg"))
    top, bottom = result["approaches"]

    assert top["formulas"]["TAM"] == pytest.approx(285.6)
    assert top["base"] == pytest.approx(171.36)
    assert bottom["base"] == pytest.approx(174.18, abs=0.01)
    assert top["p10"] < top["p50"] < top["p90"]
    assert [row["input"] for row in bottom["sensitivity"]][:2] == ["would_buy", "lifetime"]
    assert bottom["sensitivity"][1]["at_low"] > bottom["sensitivity"][1]["at_high"]
    texts = [each.text for each in ElementTree.parse(tmp_path / "out" / "s.svg").iter() if each.text]
    assert "top-down: SAM = 171 million EUR per year" in texts
    assert size(tmp_path, MODEL) == size(tmp_path, MODEL)  # the simulation is repeatable


def test_the_value_at_which_the_answer_flips(tmp_path: Path) -> None:
    result = json.loads(size(tmp_path, MODEL, "--flip", "200", "--format", "json"))
    assert result["approaches"][0]["flips_at"]["cargo_share"] == pytest.approx(0.0817, abs=1e-4)
    assert "flips at price = 5,600" in size(tmp_path, MODEL, "--flip", "200")
    assert "no flip by price alone" in size(tmp_path, MODEL, "--flip", "1000000")


def test_doubts_are_reported(tmp_path: Path) -> None:
    model = copy.deepcopy(MODEL)
    model["approaches"][0]["inputs"]["cargo_share"] = {"low": 0.2, "base": 0.3, "high": 0.4}
    said = size(tmp_path, model, code=1)
    assert "warning: top-down: input 'cargo_share' has no source" in said
    assert "differ by a factor of 4.2" in said
    del model["approaches"][1]
    assert "only one approach" in size(tmp_path, model, code=1)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("TAM * nothing", "there is no input or earlier formula 'nothing'"),
        ("__import__('os')", "only numbers, names"),
        ("price.real", "only numbers, names"),
        ("price / (bikes_sold - bikes_sold)", "cannot be computed"),
        ("price ** price ** price", "cannot be computed"),
        ("price *", "cannot be read"),
    ],
)
def test_formulas_are_arithmetic_only(tmp_path: Path, formula: str, message: str) -> None:
    model = copy.deepcopy(MODEL)
    model["approaches"][0]["formulas"]["SAM"] = formula
    assert message in size(tmp_path, model, code=2)


def test_wrong_models_are_refused_with_their_place(tmp_path: Path) -> None:
    model = copy.deepcopy(MODEL)
    model["approaches"][0]["inputs"]["price"] = {"low": 5, "base": 4, "high": 6}
    assert "top-down: input 'price': low, base and high must ascend" in size(tmp_path, model, code=2)
    model["approaches"][0]["inputs"]["price"] = {"base": "many"}
    assert "low 'many' is not a number" in size(tmp_path, model, code=2)
    assert "needs 'approaches'" in size(tmp_path, {}, code=2)
    assert "cannot be read" in run(tmp_path, "sizing.py", "none.json", code=2)


def test_a_sound_tree_gives_the_work_plan_by_priority(tmp_path: Path) -> None:
    (tmp_path / "tree.md").write_text(TREE)
    lines = run(tmp_path, "issue_tree.py", "tree.md").splitlines()
    assert lines[2:] == [
        "| high | How large is it? | size in two ways |",
        "| high | 客户愿意换品牌吗？ | 访谈二十位客户 |",
        "| medium | Do rivals leave room? | compare the five largest |",
        "| low | Is our cost lower? | teardown of two bikes |",
    ]
    drawn = run(tmp_path, "issue_tree.py", "tree.md", "--format", "mermaid")
    assert '  n3["Should we enter the Dutch market in 2027?"]\n  n3 --> n4\n  n3 --> n7' in drawn


def test_the_example_in_the_text_is_sound(tmp_path: Path) -> None:
    text = (SKILL / "SKILL.md").read_text()
    (tmp_path / "tree.md").write_text(text.split("```markdown\n")[1].split("```")[0])
    assert "| low | What could go wrong" in run(tmp_path, "issue_tree.py", "tree.md")


def test_faults_of_a_tree_are_named(tmp_path: Path) -> None:
    (tmp_path / "tree.md").write_text(
        "- Dutch market\n  - Is the price too high?\n  - Is our price too high for families?\n"
        "  - Is it big?\n    - How many buyers? -> count\n"
    )
    found = "\n".join(
        json.loads(run(tmp_path, "issue_tree.py", "tree.md", "--format", "json", code=1))["problems"]
    )
    assert "line 1: the root must be a question" in found
    assert "lines 2 and 3 may overlap" in found
    assert "line 2: leaf 'Is the price too high?' has no analysis" in found
    assert "line 4: 'Is it big?' has one branch only" in found

    (tmp_path / "tree.md").write_text("- One?\n- Two?\n")
    assert "exactly one question at the first level; it has 2" in run(
        tmp_path, "issue_tree.py", "tree.md", code=2
    )
    (tmp_path / "tree.md").write_text("- One?\nplain text\n")
    assert "tree.md:2: 'plain text' is not '- text'" in run(tmp_path, "issue_tree.py", "tree.md", code=2)
