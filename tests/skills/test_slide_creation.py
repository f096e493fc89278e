"""The scripts of `slide-creation`: a deck that opens, pictures that show it, defects that are found."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.util import Inches, Pt

SKILL = "slide-creation"


@pytest.fixture(scope="module")
def template_spec() -> dict[str, Any]:
    file = Path(__file__).parents[2] / "skills/public" / SKILL / "templates/deck.json"
    spec: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return spec


def _build(run_script: Any, folder: Path, spec: dict[str, Any], *arguments: object) -> dict[str, Any]:
    (folder / "deck.json").write_text(json.dumps(spec), encoding="utf-8")
    report: dict[str, Any] = json.loads(
        run_script(SKILL, "build_deck.py", "deck.json", "--out", "out/deck.pptx", *arguments)
    )
    return report


def test_a_deck_is_built_checked_drawn_and_read(
    tmp_path: Path, run_script: Any, public_skills: Path, template_spec: dict[str, Any]
) -> None:
    (tmp_path / "regions.png").write_bytes((public_skills / SKILL / "evals/files/regions.png").read_bytes())
    picture = {
        "layout": "image",
        "title": "各地区销售",
        "image": "regions.png",
        "alt": "Bars",
        "caption": "2024",
    }
    spec = template_spec | {"theme": "dark", "slides": [*template_spec["slides"], picture]}

    assert _build(run_script, tmp_path, spec)["warnings"] == []
    deck = Presentation(str(tmp_path / "out/deck.pptx"))
    slides = list(deck.slides)
    assert len(slides) == 10
    assert [slide.shapes.title.text_frame.text for slide in slides][2] == "Online overtook the shops in April"
    chart = next(shape.chart for shape in slides[2].shapes if shape.has_chart)
    assert list(chart.plots[0].series[0].values) == [110, 125, 149, 168, 190, 214]
    assert next(shape for shape in slides[4].shapes if shape.has_table).table.cell(1, 2).text == "14"
    assert slides[2].notes_slide.notes_text_frame.text == "Explain April: the new app."
    shown = next(shape for shape in slides[9].shapes if hasattr(shape, "image"))
    assert shown.width / shown.height == pytest.approx(800 / 448, rel=0.01)

    checked = json.loads(run_script(SKILL, "check_deck.py", "out/deck.pptx"))
    assert (checked["errors"], checked["findings"]) == (0, [])

    drawn = json.loads(
        run_script(SKILL, "render_deck.py", "out/deck.pptx", "--out", "pictures", "--renderer", "builtin")
    )
    assert len(drawn["slides"]) == 10
    with Image.open(tmp_path / drawn["slides"][8]) as closing:
        assert closing.size == (1280, 720)
        assert closing.getpixel((5, 5)) == (0x5F, 0xB0, 0xF0)  # the accent colour behind the last message
    with Image.open(tmp_path / drawn["slides"][0]) as first:
        written = {color: count for count, color in first.crop((100, 160, 1200, 400)).getcolors(1 << 20)}
        assert written[0xF4, 0xF7, 0xFA] > 500  # the title
    with Image.open(tmp_path / drawn["slides"][2]) as line:
        assert line.getpixel((80, 46)) == (0x5F, 0xB0, 0xF0)  # the line above the title
    with Image.open(tmp_path / drawn["sheet"]) as sheet:
        assert sheet.width > 1500

    read = json.loads(run_script(SKILL, "read_deck.py", "out/deck.pptx", "--json"))
    assert read[2]["content"][0]["series"]["Shop"] == [180, 176, 171, 165, 158, 150]
    assert "## 10. 各地区销售" in run_script(SKILL, "read_deck.py", "out/deck.pptx")


def test_text_that_does_not_fit_is_reported_by_both(tmp_path: Path, run_script: Any) -> None:
    slide = {
        "layout": "bullets",
        "title": "Too much",
        "bullets": ["many words follow each other here " * 9] * 9,
    }

    warnings = _build(run_script, tmp_path, {"slides": [slide]})["warnings"]
    found = json.loads(run_script(SKILL, "check_deck.py", "out/deck.pptx"))["findings"]

    assert warnings[0].startswith("slide 1: 'many words")
    assert [one["level"] for one in found] == ["error", "warning"]
    assert "of its height" in found[0]["problem"]
    assert "words; keep a slide below" in found[1]["problem"]


def test_defects_of_a_foreign_deck_are_found(tmp_path: Path, run_script: Any) -> None:
    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])  # title and an empty body
    slide.shapes.title.text = ""
    for left in (0.5, 1.0):
        box = slide.shapes.add_textbox(Inches(left), Inches(5), Inches(3), Inches(1))
        box.text_frame.text = "pale and small"
        run = box.text_frame.paragraphs[0].runs[0]
        run.font.size, run.font.color.rgb = Pt(9), RGBColor(0xDD, 0xDD, 0xDD)
    slide.shapes.add_textbox(Inches(9), Inches(1), Inches(4), Inches(1)).text_frame.text = "outside"
    deck.save(str(tmp_path / "foreign.pptx"))

    found = json.loads(run_script(SKILL, "check_deck.py", "foreign.pptx"))["findings"]
    said = " | ".join(one["problem"] for one in found)

    for words in (
        "no title",
        "empty placeholder",
        "overlap",
        "contrast of 1.4",
        "9 points",
        "beyond the slide",
    ):
        assert words in said


def test_a_template_gives_its_master_and_not_its_slides(tmp_path: Path, run_script: Any) -> None:
    company = Presentation()
    company.slide_width, company.slide_height = Inches(13.333), Inches(7.5)
    company.slides.add_slide(company.slide_layouts[0]).shapes.title.text = "Old"
    company.slide_master.name = "Company"
    company.save(str(tmp_path / "company.pptx"))
    spec = {"slides": [{"layout": "bullets", "title": "New", "bullets": ["one"]}]}

    _build(run_script, tmp_path, spec, "--template", "company.pptx")

    deck = Presentation(str(tmp_path / "out/deck.pptx"))
    assert [slide.shapes.title.text_frame.text for slide in deck.slides] == ["New"]
    assert deck.slide_master.name == "Company"
    Presentation().save(str(tmp_path / "small.pptx"))
    said = run_script(
        SKILL, "build_deck.py", "deck.json", "--out", "x.pptx", "--template", "small.pptx", code=2
    )
    assert "save it as widescreen" in said


@pytest.mark.parametrize(
    ("slide", "words"),
    [
        ({"layout": "poem", "title": "x"}, "slide 1: 'layout' must be one of title, section"),
        ({"layout": "bullets"}, "slide 1 (layout 'bullets') needs 'title'"),
        ({"layout": "bullets", "title": "x"}, "'bullets' must be a list"),
        ({"layout": "image", "title": "x", "image": "no.png"}, "image 'no.png' is not a file"),
        ({"layout": "chart", "title": "x", "chart": {"kind": "radar"}}, "chart kind 'radar'"),
        (
            {"layout": "chart", "title": "x", "chart": {"kind": "bar", "x": ["a"], "series": {"s": []}}},
            "as many",
        ),
        (
            {"layout": "table", "title": "x", "columns": ["a"], "rows": [["1", "2"]]},
            "every row of the table needs 1",
        ),
    ],
)
def test_a_wrong_description_is_refused(
    slide: dict[str, Any], words: str, tmp_path: Path, run_script: Any
) -> None:
    (tmp_path / "deck.json").write_text(json.dumps({"slides": [slide]}))

    assert words in run_script(SKILL, "build_deck.py", "deck.json", "--out", "deck.pptx", code=2)


def test_a_file_that_is_no_presentation_is_refused(tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "deck.pptx").write_text("nothing")

    assert "is no .pptx presentation" in run_script(SKILL, "check_deck.py", "deck.pptx", code=2)
    assert "is not a file" in run_script(SKILL, "read_deck.py", "none.pptx", code=2)
