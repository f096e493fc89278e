"""The scripts of `report-generation`: one Markdown file becomes PDF, Word, HTML and pictures."""

import json
from pathlib import Path
from typing import Any

import pytest
from docx import Document
from PIL import Image
from pypdf import PdfReader

SKILL = "report-generation"
EXTRA = """
## 附录 "quoted" \\backslash #hash $5 *

![Bars of four regions](figure.png)

> A *quote* with `code_x` and [a link](https://example.org/a_b)

```python
print("#set page")
```

3. three
   - nested **bold**
4. four

Orders fell by 12 % in shops that were opened before the year 2010.
"""


@pytest.fixture
def report(tmp_path: Path, public_skills: Path) -> Path:
    text = (public_skills / SKILL / "templates/report.md").read_text(encoding="utf-8")
    before, after = text.split("## Sources")
    file = tmp_path / "report.md"
    file.write_text(f"{before}{EXTRA}\n## Sources{after}", encoding="utf-8")
    Image.new("RGB", (300, 200), "#2563a8").save(tmp_path / "figure.png")
    return file


def test_one_text_becomes_every_format(report: Path, tmp_path: Path, run_script: Any) -> None:
    made = json.loads(
        run_script(SKILL, "make_report.py", report, "--out", "out/report", "--formats", "pdf,docx,html,png")
    )
    assert made["warnings"] == []

    pdf = PdfReader(tmp_path / "out/report.pdf")
    text = " ".join(" ".join(page.extract_text() for page in pdf.pages).split())
    for words in (
        "Online orders now exceed shop orders",
        '"quoted" \\backslash #hash $5',
        'print("#set page")',
        "214",
    ):
        assert words in text
    assert pdf.metadata is not None
    assert pdf.metadata.title == "Online orders now exceed shop orders"
    assert sum(len(page.images) for page in pdf.pages) == 1

    word = Document(str(tmp_path / "out/report.docx"))
    styles = [(paragraph.style.name, paragraph.text) for paragraph in word.paragraphs]
    assert ("Title", "Online orders now exceed shop orders") in styles
    assert ("Heading 2", "Summary") in styles
    assert any(text == "3.\tthree" for _, text in styles)
    assert word.tables[0].cell(2, 1).text == "214"
    assert len(word.inline_shapes) == 1
    assert any(
        rel.is_external and rel.target_ref == "https://example.org/a_b" for rel in word.part.rels.values()
    )

    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    assert '<td style="text-align:right">214</td>' in page
    assert "figure.png" not in page
    with Image.open(next((tmp_path / "out").glob("report-*1.png"))) as first:
        assert first.width > 700
    assert not list(tmp_path.glob("*.typ"))


def test_contents_and_language_follow_the_front_matter(tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "zh.md").write_text(
        (
            "---\ntitle: 季度报告\ndate: 2025-01-01\ntoc: yes\n---\n\n## 摘要\n\n销售额增长了两成。\n\n## "
            "来源\n\n1. 订单.csv\n"
        ),
        encoding="utf-8",
    )

    run_script(SKILL, "make_report.py", "zh.md", "--out", "zh", "--formats", "html")

    page = (tmp_path / "zh.html").read_text(encoding="utf-8")
    assert '<html lang="zh">' in page
    assert '<a href="#s1">摘要</a>' in page


def test_a_good_report_has_no_errors_and_a_bad_one_is_taken_apart(
    report: Path, tmp_path: Path, run_script: Any
) -> None:
    good = json.loads(run_script(SKILL, "check_report.py", report))
    assert good["errors"] == 0
    assert [one["problem"] for one in good["findings"]] == [
        "a number without a citation: 'Orders fell by 12 % in shops that were opened before the year 2010.'"
    ]

    again = "The same long sentence stands here and says nothing that is new to anybody at all."
    bad = tmp_path / "bad.md"
    bad.write_text(
        f"## First\n\nTODO write. Sales grew [1] [3–5].\n\n#### Deep\n\n{again} "
        f"{again}\n\n![](no.png)\n\n## Empty\n\n"
        "## Sources\n\n1. A\n2. B\n"
    )
    said = " | ".join(
        one["problem"] for one in json.loads(run_script(SKILL, "check_report.py", bad))["findings"]
    )
    for words in (
        "placeholder 'TODO'",
        "[5] is cited but not among the sources",
        "source 2 is never cited",
        "jumps from level 2 to 4",
        "section 'Empty' is empty",
        "picture 'no.png' is not a file",
        "no description",
        "said 2 times",
        "no 'date'",
        "no summary",
    ):
        assert words in said, words


def test_wrong_input_is_refused(report: Path, tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "empty.md").write_text("---\ntitle: x\n---\n")

    assert "knows pdf, docx" in run_script(
        SKILL, "make_report.py", report, "--out", "a", "--formats", "odt", code=2
    )
    assert "cannot be read" in run_script(SKILL, "make_report.py", "none.md", "--out", "a", code=2)
    assert "has no text" in run_script(SKILL, "check_report.py", "empty.md", code=2)
