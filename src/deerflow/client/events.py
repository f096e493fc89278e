"""Events, answer and failure of a run in the embedded client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deerflow.errors import DeerFlowError


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """One event of a run, with the same name and data as over HTTP."""

    id: str
    event: str
    data: Any


class RunFailedError(DeerFlowError):
    """The run ended in an error; the message is the run's error message."""

    code = "run_failed"


def answer_of(values: Mapping[str, Any]) -> str:
    """Return the text of the last answer in a thread's values; a question to the user counts as one."""
    for message in reversed(values.get("messages", [])):
        if message["type"] == "ai" or (message.get("artifact") or {}).get("human_input"):
            return text_of(message["content"])
    return ""


def text_of(content: Any) -> str:
    """Return the text of a message's content, a string or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text", "") if isinstance(block, dict) else block for block in blocks]
    return "".join(text for text in texts if isinstance(text, str))
