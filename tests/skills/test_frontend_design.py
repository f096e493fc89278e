"""The scripts of `frontend-design`: palettes that can be read, defects of pages, screenshots."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

SKILL = "frontend-design"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")


@pytest.mark.parametrize("base", ["#2563a8", "#fc0", "#000000", "#ffffff"])
def test_a_palette_can_be_read_in_light_and_dark(base: str, run_script: Any) -> None:
    made = json.loads(run_script(SKILL, "palette.py", base, "--json"))

    for scheme in ("light", "dark"):
        for pair, ratio in made["contrast"][scheme].items():
            assert ratio >= (3.0 if "border" in pair else 4.5), (scheme, pair)


def test_a_palette_becomes_css_that_passes_the_page_check(
    tmp_path: Path, run_script: Any, public_skills: Path
) -> None:
    run_script(SKILL, "palette.py", "#a34a00", "--out", "css/palette.css")
    css = (tmp_path / "css/palette.css").read_text()
    assert css.count("--accent:") == 2
    assert "prefers-color-scheme: dark" in css

    page = (public_skills / SKILL / "templates/page.html").read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(page.replace("<style>", f"<style>\n{css}", 1), encoding="utf-8")
    assert json.loads(run_script(SKILL, "check_page.py", "page.html"))["findings"] == []


def test_defects_of_a_page_are_found(public_skills: Path, run_script: Any) -> None:
    report = json.loads(run_script(SKILL, "check_page.py", public_skills / SKILL / "evals/files/bad.html"))
    said = [(one["level"], one["rule"]) for one in report["findings"]]

    for expected in (
        ("error", "language"),
        ("error", "document"),
        ("error", "phone"),
        ("error", "alt"),
        ("error", "keyboard"),
        ("error", "label"),
        ("error", "name"),
        ("error", "reference"),
        ("error", "ids"),
        ("error", "nesting"),
        ("error", "contrast"),
        ("error", "focus"),
        ("warning", "motion"),
        ("warning", "size"),
        ("warning", "phone"),
        ("warning", "offline"),
        ("warning", "headings"),
        ("warning", "landmarks"),
        ("warning", "name"),
    ):
        assert expected in said, expected


def test_a_link_named_by_its_picture_has_a_name(tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "page.html").write_text(
        '<!doctype html><html lang="en"><head><title>T</title>'
        '<meta name="viewport" content="width=device-width"></head><body><main><h1>H</h1>'
        '<a href="https://example.org/"><img src="a.png" alt="Home" width="1" height="1"></a>'
        "<p>One<p>Two</main></body></html>"
    )

    assert json.loads(run_script(SKILL, "check_page.py", "page.html"))["findings"] == []


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="there is no browser here")
def test_pictures_show_the_page_at_its_widths(tmp_path: Path, run_script: Any, public_skills: Path) -> None:
    page = public_skills / SKILL / "templates/page.html"

    run_script(SKILL, "screenshot.py", page, "--out", "shots", "--widths", "390,800", "--height", "700")

    with (
        Image.open(tmp_path / "shots/page-800.png") as wide,
        Image.open(tmp_path / "shots/page-390.png") as narrow,
    ):
        assert wide.size == (800, 700)
        assert wide.convert("RGB").getpixel((5, 300)) == (0xFF, 0xFA, 0xF5)  # the background of the template
        assert narrow.convert("RGB").getpixel((380, 300)) == (0xFF, 0xFA, 0xF5)


def test_wrong_input_is_refused(tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "text.html").write_text("nothing")

    assert "is no colour" in run_script(SKILL, "palette.py", "blue", code=2)
    assert "holds no HTML" in run_script(SKILL, "check_page.py", "text.html", code=2)
    assert "cannot be read" in run_script(SKILL, "check_page.py", "none.html", code=2)
    assert "is not a file" in run_script(SKILL, "screenshot.py", "none.html", "--out", "x", code=2)
    assert "--widths must be" in run_script(
        SKILL, "screenshot.py", "text.html", "--out", "x", "--widths", "10", code=2
    )
