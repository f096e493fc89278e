"""Shows the model the user's files: lists a message's uploads, and adds the images that it asked to see.

The list is added to the request only: the stored message stays what the user wrote. It is built from the
state, where each upload belongs to one message, so a message is identical in every later request and the
provider's prompt cache stays valid. Images are part of one request only: in every later request and
checkpoint they would cost far more than viewing them again.

Small models tend to invent the content of files instead of reading them. So a model that was asked about its
uploads and responds without a tool call is called once more, with a reminder to read them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import BaseTool
from typing_extensions import override

from deerflow.agents.middlewares.base import AgentKind, ChainMiddleware, with_update
from deerflow.agents.middlewares.reminder import reminder
from deerflow.agents.state import ThreadState, UploadedFile, ViewedImage
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.domain.tags import neutralise

BYTES_PER_UNIT = 1024
ONLY_NAMES = (
    "Only names and sizes are listed: read a file before you say anything about its content (read_file)."
)
READ_FILE = "read_file"
READ_FIRST = (
    "You have not read the uploaded files, so you cannot know what they say. Call read_file for each of them "
    "now ({names}), and answer after that. If the answer does not depend on them, give it again."
)
MAX_NAMED = 10
ABOUT_FILES = re.compile(
    r"\b(?:read|files?|uploads?|uploaded|attach\w*|documents?|summar\w+|compar\w+)\b|文件|附件|上传|文档|阅读|总结|比较|对比"
)
"""Words that show that a question is about its uploads."""


class UploadsMiddleware(ChainMiddleware):
    """Prepends the list of new uploads to the message they came with."""

    switch = "uploads"
    applies_to = AgentKind.LEAD
    before = ("ReminderMiddleware", "DanglingToolCallMiddleware")

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        state = cast("ThreadState", request.state)
        files = state.get("uploaded_files")
        if not files:
            return await handler(request)
        listed = request.override(messages=with_uploads(request.messages, files))
        response = await handler(listed)
        unread = unread_uploads(request.messages, files) if _only_talks(response) else []
        if not unread or not any(_name_of(tool) == READ_FILE for tool in request.tools):
            return response
        names = ", ".join(file.get("markdown_path", file["path"]) for file in unread[:MAX_NAMED])
        again = reminder(READ_FIRST.format(names=neutralise(names)))
        return await handler(listed.override(messages=[*listed.messages, again]))


def unread_uploads(messages: Sequence[AnyMessage], files: Iterable[UploadedFile]) -> list[UploadedFile]:
    """Return the last message's uploads if it is a question about them; empty once it was responded to."""
    question = messages[-1] if messages else None
    if not isinstance(question, HumanMessage):
        return []
    mine = [file for file in files if file["message_id"] == question.id]
    text = question.text.casefold()
    is_about_them = ABOUT_FILES.search(text) or any(file["filename"].casefold() in text for file in mine)
    return mine if is_about_them else []


def _only_talks(response: ModelResponse[Any]) -> bool:
    answers = [message for message in response.result if isinstance(message, AIMessage)]
    return bool(answers) and not any(one.tool_calls or one.invalid_tool_calls for one in answers)


def _name_of(tool: BaseTool | dict[str, Any]) -> str:
    return tool.name if isinstance(tool, BaseTool) else str(tool.get("name", ""))


def with_uploads(messages: Sequence[AnyMessage], files: Iterable[UploadedFile]) -> list[AnyMessage]:
    """Return `messages` with each message's uploads listed at its start."""
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
    """Return the list of files for the model."""
    lines = (neutralise(_line(file)) for file in files)  # a file name may contain a prompt tag
    return "\n".join(["<uploaded_files>", *lines, ONLY_NAMES, "</uploaded_files>"])


def _line(file: UploadedFile) -> str:
    named = f"- {file['path']} ({readable_size(file['size'])})"
    return f"{named}, its text as Markdown: {file['markdown_path']}" if "markdown_path" in file else named


def readable_size(size: int) -> str:
    """Return a byte count in B, KB or MB."""
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


class ViewImageMiddleware(ChainMiddleware):
    """Adds the images that `view_image` stored in the state to the next request."""

    switch = "view_image"

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        state = cast("ThreadState", request.state)
        images = state.get("viewed_images")
        if not images:
            return await handler(request)
        response = await handler(request.override(messages=[*request.messages, images_message(images)]))
        return with_update(response, {"viewed_images": {}})


def images_message(images: Mapping[str, ViewedImage]) -> HumanMessage:
    """Return a message with each image after its path."""
    blocks: list[str | dict[str, Any]] = []
    for path, image in images.items():
        url = f"data:{image['mime_type']};base64,{image['base64']}"
        blocks += [
            {"type": "text", "text": f"The image {path}:"},
            {"type": "image_url", "image_url": {"url": url}},
        ]
    return HumanMessage(blocks)
