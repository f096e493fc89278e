"""Adds the images that the model asked to see to its next request.

They are part of one request only and are then removed from the state: an image in every later request and
checkpoint would cost far more than viewing it again.
"""

from collections.abc import Mapping
from typing import Any, cast

from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import HumanMessage
from langgraph.types import Command
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.state import ThreadState, ViewedImage
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler


class ViewImageMiddleware(ChainMiddleware):
    """Adds the images that `view_image` stored in the state to the next request."""

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        state = cast("ThreadState", request.state)
        images = state.get("viewed_images")
        if not images:
            return await handler(request)
        response = await handler(request.override(messages=[*request.messages, images_message(images)]))
        return ExtendedModelResponse(model_response=response, command=Command(update={"viewed_images": {}}))


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
