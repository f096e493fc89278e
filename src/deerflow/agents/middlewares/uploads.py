"""Tells the model which files came with a message.

The list goes into the request only: what is stored stays what the user wrote. It is made from the state,
where each upload is tied to one message, so a message reads the same in every later call and the
provider's prompt cache holds.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar, cast

from langchain_core.messages import AnyMessage, HumanMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import Audience, HouseMiddleware
from deerflow.agents.state import ThreadState, UploadedFile
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.domain.tags import neutralise

BYTES_PER_UNIT = 1024
ONLY_NAMES = (
    "Only names and sizes are listed: read a file before you say anything about its content (read_file)."
)
"""Small models tend to make the content up instead of reading it."""


class UploadsMiddleware(HouseMiddleware):
    """Puts the list of new uploads in front of the message they came with."""

    audience: ClassVar[Audience] = Audience.LEAD

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        state = cast("ThreadState", request.state)
        files = state.get("uploaded_files")
        if not files:
            return await handler(request)
        return await handler(request.override(messages=with_uploads(request.messages, files)))


def with_uploads(messages: Sequence[AnyMessage], files: Iterable[UploadedFile]) -> list[AnyMessage]:
    """Return `messages` with each upload listed in front of its own."""
    by_message: dict[str, list[UploadedFile]] = {}
    for file in files:
        by_message.setdefault(file["message_id"], []).append(file)
    return [
        _with_block(message, by_message[message.id])
        if isinstance(message, HumanMessage) and message.id in by_message
        else message
        for message in messages
    ]


def uploads_block(files: Iterable[UploadedFile]) -> str:
    """Return the list as the model reads it."""
    lines = (neutralise(_line(file)) for file in files)  # a name may look like one of our tags
    return "\n".join(["<uploaded_files>", *lines, ONLY_NAMES, "</uploaded_files>"])


def _line(file: UploadedFile) -> str:
    named = f"- {file['path']} ({readable_size(file['size'])})"
    return f"{named}, its text as Markdown: {file['markdown_path']}" if "markdown_path" in file else named


def readable_size(size: int) -> str:
    """Return a byte count as people write it."""
    if size < BYTES_PER_UNIT:
        return f"{size} B"
    if size < BYTES_PER_UNIT**2:
        return f"{size / BYTES_PER_UNIT:.1f} KB"
    return f"{size / BYTES_PER_UNIT**2:.1f} MB"


def _with_block(message: HumanMessage, files: list[UploadedFile]) -> HumanMessage:
    block = uploads_block(files)
    if isinstance(message.content, str):
        return message.model_copy(update={"content": f"{block}\n\n{message.content}"})
    return message.model_copy(update={"content": [{"type": "text", "text": block}, *message.content]})
