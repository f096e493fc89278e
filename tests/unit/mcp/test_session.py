"""What becomes of a result's blocks."""

import base64

from mcp_types import CallToolResult, ImageContent, TextContent

from deerflow.mcp.base import Limits
from deerflow.mcp.session import answer_of

DATA = base64.b64encode(bytes(range(256)) * 19).decode()
IMAGE = ImageContent(data=DATA, mime_type="image/png")


async def test_an_image_that_the_structured_content_repeats_comes_once() -> None:
    repeated = {"result": {"type": "image", "data": DATA, "url": f"data:image/png;base64,{DATA}"}}

    answer = await answer_of(CallToolResult(content=[IMAGE], structured_content=repeated), Limits())

    assert [len(file.data) for file in answer.files] == [256 * 19]
    assert answer.text == (
        '{"result": {"type": "image", "data": "(in the file below)", '
        '"url": "data:image/png;base64,(in the file below)"}}'
    )


async def test_an_image_that_a_text_repeats_comes_once() -> None:
    said = TextContent(text=f'{{"image": "{DATA}", "size": 9}}')

    answer = await answer_of(CallToolResult(content=[said, IMAGE]), Limits(file_bytes=100))

    assert answer.text == (
        '{"image": "(in the file below)", "size": 9}\n\n[image/png was left out: larger than 100 bytes]'
    )
