"""What the model decided: words, tool calls, or both."""

from dataclasses import dataclass
from typing import Any

from deerflow.models.offline.words import Language


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call to make."""

    name: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model."""

    text: str = ""
    calls: tuple[Call, ...] = ()


def label(language: Language, english: str, chinese: str) -> str:
    """Return a step's label in the language of the question."""
    return chinese if language == "zh" else english
