"""The script of `chart-visualization`: every kind gives a picture, and defects are reported."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

SKILL = "chart-visualization"
CATEGORIES = {"x": ["North", "South", "East"], "series": {"2023": [3, 2, 5], "2024": [4, 1, 7]}}
PARTS = {"x": ["Staff", "Rent", "Tools"], "series": {"budget": [50, 30, 20]}}
STEPS = {"x": ["2023", "Price", "Volume"], "series": {"profit": [100, 35, -22]}}
MONTHS = {"x": ["2024-01", "2024-02", "2024-03"], "series": {"线上": [1, 2, 3], "门店": [3, 2.5, None]}}
POINTS = {"x": [1, 2, 3, 4], "series": {"a": [2, 4, 5, 4]}}
COMMON = {"subtitle": "Units, 2024", "source": "test data"}
KINDS = {
    "bar": CATEGORIES,
    "barh": CATEGORIES,
    "line": MONTHS,
    "area": POINTS,
    "scatter": POINTS,
    "histogram": {"series": {"a": [1, 2, 2, 3, 3, 3, 8]}},
    "box": {"series": {"North": [1, 2, 2, 3, 9], "South": [2, 5, 6, 8, 14]}},
    "heatmap": CATEGORIES,
    "pie": PARTS,
    "donut": PARTS,
    "waterfall": STEPS,
}


def _draw(run_script: Any, folder: Path, spec: dict[str, Any], *arguments: str) -> dict[str, Any]:
    (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    report: dict[str, Any] = json.loads(
        run_script(SKILL, "chart.py", "spec.json", "--out", "out/chart", *arguments)
    )
    return report


def _colours(file: Path) -> set[tuple[int, ...]]:
    return {colour for _, colour in Image.open(file).convert("RGB").getcolors(1 << 24)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_a_picture_without_defects(kind: str, tmp_path: Path, run_script: Any) -> None:
    spec = {"kind": kind, "title": "East sold the most in the year 2024", "data": KINDS[kind], **COMMON}

    report = _draw(run_script, tmp_path, spec, "--formats", "png")

    with Image.open(tmp_path / "out/chart.png") as picture:
        assert picture.size == (1600, 896)
    assert len(_colours(tmp_path / "out/chart.png")) > 10
    assert report["files"] == ["out/chart.png"]
    # A machine without a Chinese font is told so; everything else would be a defect.
    assert [words for words in report["warnings"] if "fonts-noto-cjk" not in words] == []


def test_a_file_in_long_form_becomes_series_with_the_chosen_one_in_colour(
    tmp_path: Path, run_script: Any, public_skills: Path
) -> None:
    data = (public_skills / SKILL / "evals/files/monthly.csv").read_text()
    (tmp_path / "monthly.csv").write_text(data)
    spec = {
        "kind": "line", "title": "Online overtook the shops in April", "data": "monthly.csv", "x": "month",
        "y": "orders", "by": "channel", "highlight": ["Shop"], **COMMON,
    }  # fmt: skip

    report = _draw(run_script, tmp_path, spec)
    svg = (tmp_path / "out/chart.svg").read_text()
    again = _draw(run_script, tmp_path, spec)

    assert report["warnings"] == again["warnings"] == []
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "#e07b39" in svg  # the second colour for the chosen series
    assert "#2563a8" not in svg  # the other one is grey
    assert (tmp_path / "out/chart.svg").read_text() == svg


def test_sorting_and_top_join_the_rest(tmp_path: Path, run_script: Any) -> None:
    data = {"x": [f"City {number}" for number in range(30)], "series": {"people": list(range(1, 31))}}
    spec = {"kind": "pie", "title": "People live in many cities", "data": data, **COMMON}

    many = _draw(run_script, tmp_path, spec, "--formats", "png")["warnings"]
    short = spec | {"kind": "barh", "sort": "desc", "top": 4, "title": "大城市人口最多"}
    drawn = _draw(run_script, tmp_path, short, "--formats", "svg")

    assert any("30 slices" in line for line in many)
    assert drawn["warnings"] == []
    assert "其他 (26)" in (tmp_path / drawn["files"][0]).read_text(encoding="utf-8")


def test_missing_words_are_reported(tmp_path: Path, run_script: Any) -> None:
    spec = {
        "kind": "bar",
        "title": "A title",
        "data": {"x": ["a"], "series": {f"s{n}": [n] for n in range(9)}},
    }

    said = " ".join(_draw(run_script, tmp_path, spec, "--formats", "png")["warnings"])

    assert "no 'source'" in said
    assert "no unit" in said
    assert "9 series" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "radar"}, "'kind' is 'radar'; use one of bar, barh"),
        ({"title": " "}, "'title' is missing"),
        ({"colour": "red"}, "unknown keys colour"),
        ({"palette": "neon"}, "'palette' is 'neon'"),
        ({"data": "none.csv", "y": "a"}, "cannot be read"),
        ({"data": {"x": ["a"], "series": {"s": [1, 2]}}}, "has 2 values for 1 positions"),
        ({"data": {"x": ["a"], "series": {"s": ["many"]}}}, "'many' in 's' is no number"),
        ({"kind": "pie", "data": {"x": ["a"], "series": {"s": [-1]}}}, "no negative values"),
    ],
)
def test_a_wrong_specification_is_refused(
    change: dict[str, Any], words: str, tmp_path: Path, run_script: Any
) -> None:
    spec = {"kind": "bar", "title": "A title", "data": CATEGORIES, **change}
    (tmp_path / "spec.json").write_text(json.dumps(spec))

    said = run_script(SKILL, "chart.py", "spec.json", "--out", "chart", code=2)

    assert words in said
    assert not (tmp_path / "chart.png").exists()
