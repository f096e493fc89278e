"""What the offline model says in its own words; the texts are in `phrases.yaml`."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

Language = Literal["en", "zh"]

_FILE = Path(__file__).with_suffix(".yaml")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")


def say(name: str, language: Language, /, **values: object) -> str:
    """Return a phrase in a language."""
    return _phrases()[name][language == "zh"].format(**values)


@cache
def _phrases() -> dict[str, list[str]]:
    loaded: dict[str, list[str]] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return loaded


def language_of(text: str) -> Language:
    """Return the language to answer a text in."""
    return "zh" if _HAN.search(text) and not _KANA_OR_HANGUL.search(text) else "en"


def files_phrase(paths: Sequence[str], language: Language) -> str:
    """Return the names of a few files, or how many they are."""
    names = [path.rsplit("/", 1)[-1] for path in paths]
    return ", ".join(names) if len(names) <= 3 else say("files", language, count=len(names))
