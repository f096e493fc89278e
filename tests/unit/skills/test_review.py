"""A model's review: strict JSON or nothing, programs need `allow`, the skill is data in the prompt."""

import pytest

from deerflow.errors import SkillBlockedError
from deerflow.skills import FileContent
from deerflow.skills.review import MAX_REVIEWED_CHARS, SkillReviewer, parse_review

OLD = {"SKILL.md": FileContent(b"old"), "scripts/a.py": FileContent(b"print(1)")}


def reviewer(answer: str, *, is_closed: bool = True) -> tuple[SkillReviewer, list[str]]:
    prompts: list[str] = []

    async def ask(prompt: str) -> str:
        prompts.append(prompt)
        return answer

    return SkillReviewer(ask, "m", is_closed=is_closed), prompts


async def test_only_changed_files_are_shown_as_data() -> None:
    checker, prompts = reviewer('{"verdict": "warn", "reason": "hm"}')

    review = await checker.check("notes", {**OLD, "SKILL.md": FileContent(b"new text")}, OLD)

    (prompt,) = prompts
    fence = next(line for line in prompt.splitlines() if line.startswith("=====SKILL-"))
    assert (review.verdict, review.reason) == ("warn", "hm")
    assert "new text" in prompt.split(f"\n{fence}\n")[1]
    assert "scripts/a.py" not in prompt


async def test_a_changed_program_needs_allow() -> None:
    checker, _ = reviewer('{"verdict": "warn", "reason": "hm"}')

    with pytest.raises(SkillBlockedError, match="review-executable"):
        await checker.check("notes", {**OLD, "scripts/a.py": FileContent(b"print(2)")}, OLD)


@pytest.mark.parametrize("answer", ["", "too long"])
async def test_a_failed_review_blocks_or_warns_as_configured(answer: str) -> None:
    text = "x" * (MAX_REVIEWED_CHARS + 1) if answer else "short"
    package = {"SKILL.md": FileContent(text.encode())}
    closed, _ = reviewer(answer)
    opened, _ = reviewer(answer, is_closed=False)

    with pytest.raises(SkillBlockedError, match="review-failed"):
        await closed.check("notes", package, {})
    assert (await opened.check("notes", package, {})).verdict == "warn"


@pytest.mark.parametrize(
    "answer",
    [
        "allow",
        '```json\n{"verdict": "allow", "reason": ""}\n```',
        '{"verdict": "ALLOW", "reason": ""}',
        '{"verdict": "allow"}',
        '{"verdict": "allow", "reason": "", "note": 1}',
        '[{"verdict": "allow", "reason": ""}]',
    ],
)
def test_anything_else_than_the_requested_json_blocks(answer: str) -> None:
    assert (parse_review(answer, "m").verdict, parse_review(answer, "m").rule_id) == (
        "block",
        "review-invalid",
    )
