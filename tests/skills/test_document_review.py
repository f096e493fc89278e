"""The scripts of `document-review`: every kind of document is read, checked, compared and commented."""

import json
from pathlib import Path
from typing import Any

import pytest
from docx import Document
from pypdf import PdfWriter

SKILL = "document-review"


@pytest.fixture
def contract(public_skills: Path) -> Path:
    return public_skills / SKILL / "evals/files/contract.md"


@pytest.fixture
def word(tmp_path: Path) -> Path:
    document = Document()
    document.add_heading("Offer", 1)
    paragraph = document.add_paragraph("We deliver ")
    paragraph.add_run("within ten (12) days").bold = True
    paragraph.add_run(" after “your” order.")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Price", "4,000 EUR"
    document.add_comment(paragraph.runs[0], text="old remark", author="Ann", initials="A")
    document.save(str(tmp_path / "offer.docx"))
    return tmp_path / "offer.docx"


def test_mechanical_defects_are_found(contract: Path, run_script: Any) -> None:
    findings = json.loads(run_script(SKILL, "check_document.py", contract))["findings"]

    assert {(one["rule"], one["problem"]) for one in findings} == {
        ("placeholder", "'[date]' was not filled in"),
        ("reference", "'clause 9.2' does not exist"),
        ("numbering", "1.4 follows 1.2: something is missing"),
        ("date", "'Monday, 5 March 2025' was a Wednesday"),
        ("amount", "'thirty (20)': word and figure differ"),
        ("term", "'Confidential Information' is defined but never used"),
    }


def test_chinese_articles_and_brackets_are_checked(tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "合同.txt").write_text(
        "第一条 标的\n\n按照第九条执行（见附件。\n\n第二条 价款 待定\n", encoding="utf-8"
    )

    said = [
        one["problem"] for one in json.loads(run_script(SKILL, "check_document.py", "合同.txt"))["findings"]
    ]

    assert said == ["'待定' was not filled in", "第九条 does not exist", "（） do not match"]


def test_word_is_read_and_commented_without_touching_the_original(
    word: Path, tmp_path: Path, run_script: Any
) -> None:
    before = word.read_bytes()
    read = json.loads(run_script(SKILL, "extract.py", word, "--json"))
    assert [(block["kind"], block["text"]) for block in read["blocks"]] == [
        ("heading", "Offer"),
        ("paragraph", "We deliver within ten (12) days after “your” order."),
        ("table row", "Price | 4,000 EUR"),
    ]
    assert read["comments"] == [{"author": "Ann", "text": "old remark"}]

    findings = [
        {
            "quote": "within ten (12) days",
            "comment": "They differ.",
            "severity": "major",
            "suggestion": "within ten (10) days",
        },
        {
            "quote": 'after "your" order',
            "comment": "Whose order?",
            "severity": "minor",
            "category": "clarity",
        },
        {"quote": "4,000 EUR", "comment": "With tax?", "severity": "suggestion"},
    ]
    (tmp_path / "findings.json").write_text(json.dumps(findings))
    made = json.loads(run_script(SKILL, "annotate.py", word, "findings.json", "--out", "out/review"))

    assert made["comments"] == 3
    assert made["counts"] == {"critical": 0, "major": 1, "minor": 1, "suggestion": 1}
    commented = Document(str(tmp_path / "out/review.docx"))
    texts = [comment.text for comment in commented.comments]
    assert texts[1] == "[major] They differ.\nSuggestion: within ten (10) days"
    assert len(texts) == 4
    review = (tmp_path / "out/review.md").read_text(encoding="utf-8")
    assert "## Major (1)\n\n**P2, Offer**\n\n> within ten (12) days" in review
    assert word.read_bytes() == before


def test_versions_are_compared_word_by_word(contract: Path, tmp_path: Path, run_script: Any) -> None:
    text = contract.read_text(encoding="utf-8")
    moved = '3.2 "Confidential Information" means everything marked as confidential.'
    text = (
        text.replace("14 days", "30 days")
        .replace(moved + "\n\n", "")
        .replace("## 1 Services", f"{moved}\n\n## 1 Services")
    )
    (tmp_path / "new.md").write_text(
        text + "\n5.1 German law applies to everything here.\n", encoding="utf-8"
    )

    result = json.loads(run_script(SKILL, "compare.py", contract, "new.md", "--json"))

    assert result["counts"] == {"moved": 1, "changed": 1, "added": 1}
    changed = next(change for change in result["changes"] if change["kind"] == "changed")
    assert "within ~~14~~ **30** days" in changed["text"]
    assert "0 differences: none" in run_script(SKILL, "compare.py", contract, contract)


def test_what_cannot_be_reviewed_is_said(word: Path, contract: Path, tmp_path: Path, run_script: Any) -> None:
    blank = PdfWriter()
    blank.add_blank_page(200, 200)
    blank.write(tmp_path / "scan.pdf")
    blank.encrypt("secret")
    blank.write(tmp_path / "locked.pdf")
    (tmp_path / "broken.docx").write_text("x")
    (tmp_path / "invented.json").write_text(
        '[{"quote": "not in there", "comment": "c", "severity": "minor"}]'
    )
    (tmp_path / "level.json").write_text('[{"quote": "Acme", "comment": "c", "severity": "bad"}]')

    for arguments, words in (
        (["extract.py", "none.docx"], "none.docx is not a file"),
        (["extract.py", "broken.docx"], "cannot be read"),
        (["extract.py", "scan.pdf"], "holds no text"),
        (["extract.py", "locked.pdf"], "protected by a password"),
        (["extract.py", "level.json"], "of no known kind"),
        (["annotate.py", contract, "invented.json", "--out", "x"], "finding 1: 'not in there'"),
        (["annotate.py", contract, "level.json", "--out", "x"], "'severity' is 'bad'"),
    ):
        assert words in run_script(SKILL, *arguments, code=2)
    assert not list(tmp_path.glob("x.*"))
