"""Cases are read with clear errors, checked exactly where they can be, and compared strictly."""

from pathlib import Path

import pytest

from deerflow.errors import InvalidInputError
from deerflow.skills.evals import (
    CaseResult,
    CaseRun,
    EvalCase,
    case_files,
    check_assertion,
    compare,
    judge_prompt,
    parse_judgement,
    read_evals,
)

RUN = CaseRun(
    answer="The total is 42 EUR.",
    outputs={"report.md": "# Report\ntotal 42", "charts/a.png": ""},
    tools=("bash", "write_file"),
)


@pytest.mark.parametrize(
    ("assertion", "held"),
    [
        ("contains: TOTAL IS", True),
        ("contains: 43", False),
        ("not contains: 43", True),
        (r"regex: \d+ EUR", True),
        ("regex: (", False),
        ("regex: ^(.*?,){30}x", False),
        ("file exists: *.md", True),
        ("file exists: charts/*.png", True),
        ("file exists: *.pptx", False),
        ("file contains: *.md: total 42", True),
        ("file contains: *.md: total 43", False),
        ("tool used: bash", True),
        ("tool not used: bash", False),
        ("The report has a recommendation", None),
        ("Note: it is short", None),
    ],
)
def test_assertions_are_checked_by_their_beginning(assertion: str, held: bool | None) -> None:
    assert check_assertion(assertion, RUN) is held


def test_the_result_is_data_in_the_prompt_of_the_judge() -> None:
    prompt = judge_prompt(EvalCase(prompt="Add it up"), RUN, ["It is polite"])
    fence = next(line for line in prompt.splitlines() if line.startswith("=====RESULT-"))

    assert prompt.count(fence) == 3  # named once, then around the result
    assert "1. It is polite" in prompt
    assert "total 42" in prompt


@pytest.mark.parametrize("answer", ["yes", '{"results": [true]}', '{"results": [1, 0]}', "[true, true]"])
def test_a_judgement_in_another_form_does_not_count(answer: str) -> None:
    assert parse_judgement(answer, 2) is None


def test_a_judgement_has_one_value_per_assertion() -> None:
    assert parse_judgement('{"results": [true, false]}', 2) == [True, False]


def result(case: str, *held: bool | None, error: str = "") -> CaseResult:
    return CaseResult(case, {str(number): each for number, each in enumerate(held)}, error)


@pytest.mark.parametrize(
    ("old", "new", "is_better", "reason"),
    [
        ([result("a", False)], [result("a", True)], True, "better: a"),
        ([result("a", True)], [result("a", True)], False, "no case is better"),
        ([result("a", True), result("b", False)], [result("a", False), result("b", True)], False, "worse: a"),
        ([result("a", None)], [result("a", None)], False, "no case could be judged"),
        ([result("a", True)], [result("a", True, error="failed")], False, "worse: a"),
        ([result("a", True, False)], [result("a", True, True)], True, "better: a"),
    ],
)
def test_a_draft_must_be_better_somewhere_and_worse_nowhere(
    old: list[CaseResult], new: list[CaseResult], is_better: bool, reason: str
) -> None:
    found = compare(old, new)

    assert (found.is_better, found.reason) == (is_better, reason)


def test_files_of_cases_stay_below_their_folder(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "SKILL.md").write_text("x")

    with pytest.raises(InvalidInputError, match="is not below"):
        case_files(tmp_path, EvalCase(prompt="x", files=("../SKILL.md",)))


def test_broken_cases_say_where(tmp_path: Path) -> None:
    assert read_evals(tmp_path) is None
    (tmp_path / "evals").mkdir()
    file = tmp_path / "evals" / "evals.json"
    file.write_text('{"evals": [{"assertions": []}]}')

    with pytest.raises(InvalidInputError, match=r"evals\.0\.prompt"):
        read_evals(tmp_path)
