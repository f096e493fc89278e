"""What people are shown is what would run: nothing hides, nothing passes for something else."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from deerflow.domain.visible_text import visible

RULES: dict[str, Any] = json.loads((Path(__file__).parents[2] / "support/visible_text.json").read_text())


@pytest.mark.parametrize("case", RULES["texts"], ids=lambda case: case["name"])
def test_a_text_is_shown(case: dict[str, str]) -> None:
    assert visible(case["text"]) == case["shown"]


def test_every_character_alone_is_shown_as_the_page_shows_it() -> None:
    coded = {point for first, last in RULES["coded"] for point in range(first, last + 1)}

    assert {point for point in range(0x110000) if visible(chr(point)) != chr(point)} == coded


@pytest.mark.parametrize("unit", ["a", "а", "aа ", "\u202e", "аб", "一", "_0"])
def test_the_time_grows_with_the_length_only(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    started = time.process_time()

    visible(text)

    assert time.process_time() - started < 5  # a quadratic way would take hours
