"""The scripts of `newsletter-generation`: a letter in three forms, and what must not be sent."""

import json
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

SKILL = "newsletter-generation"


@pytest.fixture
def issue(public_skills: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(
        (public_skills / SKILL / "templates/issue.json").read_text(encoding="utf-8")
    )
    return loaded


def _save(folder: Path, issue: dict[str, Any]) -> None:
    (folder / "issue.json").write_text(json.dumps(issue), encoding="utf-8")


def test_an_issue_becomes_html_text_and_a_draft(
    issue: dict[str, Any], tmp_path: Path, run_script: Any
) -> None:
    issue["sections"][0]["items"][0] |= {
        "image": "https://harbour-bakery.test/b.png",
        "alt": "A bicycle",
        "title": "Salt & <bread>",
    }
    _save(tmp_path, issue)

    made = json.loads(run_script(SKILL, "build_newsletter.py", "issue.json", "--out", "out/may"))
    letter = (tmp_path / "out/may.html").read_text(encoding="utf-8")
    words = (tmp_path / "out/may.txt").read_text(encoding="utf-8")
    draft = message_from_bytes((tmp_path / "out/may.eml").read_bytes(), policy=default)

    assert made["html_bytes"] < 20_000
    for part in (
        "Salt &amp; &lt;bread&gt;",
        "<strong>Monday</strong>",
        'alt="A bicycle"',
        "{{unsubscribe_url}}",
        "max-width:600px",
    ):
        assert part in letter
    assert '<a href="https://harbour-bakery.test/course"' in letter
    assert "* Salt & <bread>\n" in words
    assert "one <https://harbour-bakery.test/course>." in words
    assert words.endswith("Unsubscribe: {{unsubscribe_url}}\n")
    assert max(map(len, words.splitlines())) <= 80
    assert draft["Subject"] == issue["subject"]
    assert [part.get_content_type() for part in draft.iter_parts()] == ["text/plain", "text/html"]
    html_part = draft.get_body(("html",))
    assert html_part is not None
    assert html_part.get_content().replace("\r\n", "\n").strip() == letter.strip()
    assert json.loads(run_script(SKILL, "check_newsletter.py", "out/may.html"))["findings"] == []
    run_script(SKILL, "build_newsletter.py", "issue.json", "--out", "again")
    assert (tmp_path / "again.eml").read_bytes() == (tmp_path / "out/may.eml").read_bytes()


def test_a_chinese_issue_is_written_in_all_parts(
    issue: dict[str, Any], tmp_path: Path, run_script: Any
) -> None:
    issue |= {
        "subject": "六月通讯：夜骑开始报名",
        "title": "夜骑开始报名",
        "language": "zh",
        "intro": "大家好，" * 40,
    }
    _save(tmp_path, issue)

    run_script(SKILL, "build_newsletter.py", "issue.json", "--out", "june")

    draft = message_from_bytes((tmp_path / "june.eml").read_bytes(), policy=default)
    text = draft.get_body(("plain",))
    assert draft["Subject"] == "六月通讯：夜骑开始报名"
    assert text is not None
    assert text.get_content().startswith("夜骑开始报名\r\n============") or text.get_content().startswith(
        "夜骑开始报名\n============"
    )
    assert '<html lang="zh">' in (tmp_path / "june.html").read_text(encoding="utf-8")


def test_weak_issues_and_foreign_letters_are_criticised(
    issue: dict[str, Any], tmp_path: Path, run_script: Any
) -> None:
    issue["subject"] = issue["preheader"] = (
        "FREE BREAD NOW!!! This subject is far too long for any phone that people carry"
    )
    issue["sections"][0]["items"][0] |= {
        "text": "word " * 150,
        "url": issue["sections"][0]["items"][1]["url"],
    }
    issue["sections"][0]["items"][1] |= {"source": "", "text": "TODO"}
    del issue["action"]
    _save(tmp_path, issue)
    said = " | ".join(
        one["problem"]
        for one in json.loads(run_script(SKILL, "check_newsletter.py", "issue.json"))["findings"]
    )
    for part in (
        "characters; phones",
        "repeats the subject",
        "sounds like spam: '!!!'",
        "150 words",
        "appears 2 times",
        "has no source",
        "no main action",
        "placeholder 'TODO'",
    ):
        assert part in said, part

    (tmp_path / "foreign.html").write_text(
        '<script></script><div style="display: flex"><a href="/x">x</a><img src="a.png"></div>'
        + "x" * 103_000
    )
    said = " | ".join(
        one["problem"]
        for one in json.loads(run_script(SKILL, "check_newsletter.py", "foreign.html"))["findings"]
    )
    for part in (
        "<script>",
        "display:flex",
        "link '/x'",
        "has no alt",
        "not at an https",
        "unsubscribe",
        "bytes",
    ):
        assert part in said, part


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"subject": ""}, "'subject' is missing"),
        ({"footer": {"sender": "x"}}, "'footer.unsubscribe' is missing"),
        ({"action": {"text": "Go", "url": "www.example"}}, "action.url is 'www.example'"),
        ({"accent": "brown"}, "'accent' is 'brown'"),
        ({"sections": [{"heading": "Empty"}]}, "section 1 (Empty) needs 'text' or 'items'"),
        ({"intro": "See [this](javascript:x)"}, "the link of 'this'"),
    ],
)
def test_a_wrong_issue_is_refused(
    change: dict[str, Any], words: str, issue: dict[str, Any], tmp_path: Path, run_script: Any
) -> None:
    _save(tmp_path, issue | change)

    assert words in run_script(SKILL, "build_newsletter.py", "issue.json", "--out", "x", code=2)
    assert not list(tmp_path.glob("x.*"))
