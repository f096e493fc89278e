"""How an async function becomes a tool: one place that turns our errors into the model's sentences."""

import functools
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator
from pydantic.v1 import ValidationError as ValidationErrorV1
from typing_extensions import override

from deerflow.context import RunContext
from deerflow.errors import DeerFlowError, SandboxError

Runtime = ToolRuntime[RunContext, Any]
"""What a tool gets beside its arguments: the run's context, the state and the call's id."""

MAX_PATH_CHARS = 4096
SAFE_TO_REPEAT = "is_safe_to_repeat"
"""The key of a tool's metadata that says: calling it twice is as good as once."""


def tool_of(
    name: str,
    arguments: type[BaseModel],
    *,
    return_direct: bool = False,
    with_artifact: bool = False,
    is_safe_to_repeat: bool = False,
) -> Callable[[Callable[..., Awaitable[Any]]], BaseTool]:
    """Make a tool of an async function whose docstring is what the model reads about it.

    Args:
        arguments: What the model may send; the function also takes `runtime`.
        return_direct: The agent's turn ends after the tool.
        with_artifact: The function returns the text and an artifact for the people watching.
        is_safe_to_repeat: It changes nothing by itself, so a crash in the middle does no harm.
    """

    def build(function: Callable[..., Awaitable[Any]]) -> BaseTool:
        @functools.wraps(function)
        async def call(**values: Any) -> Any:
            try:
                return await function(**values)
            except DeerFlowError as error:
                raise ToolException(str(error)) from error

        return PlainTool.from_function(
            coroutine=call,
            name=name,
            description=_dedent(function.__doc__ or name),
            args_schema=arguments,
            return_direct=return_direct,
            response_format="content_and_artifact" if with_artifact else "content",
            handle_tool_error=True,
            handle_validation_error=_explain,
            metadata={SAFE_TO_REPEAT: True} if is_safe_to_repeat else None,
        )

    return build


class PlainTool(StructuredTool):
    """A tool whose function takes its arguments and `runtime`, and nothing that a library would add.

    LangChain looks for such additions in the types of `_arun` before every call; here there are few to read.
    """

    @override
    async def _arun(self, *args: Any, **values: Any) -> Any:
        assert self.coroutine is not None  # `tool_of` gave it one
        return await self.coroutine(**values)


class Described(BaseModel):
    """Arguments that begin with the step's label; a model that forgets it is not sent back."""

    description: str = Field(
        description="Why you do this, in a few words; people see it as the step's label."
    )

    @model_validator(mode="before")
    @classmethod
    def _label(cls, values: Any) -> Any:
        return {"description": "", **values} if isinstance(values, dict) else values


def _plain(text: str) -> str:
    if "\0" in text:
        raise ValueError("has a NUL character; leave it out")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("has half a surrogate pair; send whole characters") from error
    return text


PlainText = Annotated[str, AfterValidator(_plain)]
"""Text that every shell and file system can take."""

VirtualPath = Annotated[str, AfterValidator(_plain), Field(min_length=1, max_length=MAX_PATH_CHARS)]
"""A path as the model sees it, such as `/mnt/user-data/workspace/notes.md`."""


def clip_middle(text: str, limit: int) -> str:
    """Return the start and end of `text`, saying how much went from between; 0 means no limit."""
    if limit <= 0 or len(text) <= limit:
        return text
    head = limit // 2
    tail = len(text) - (limit - head)
    return f"{text[:head]}\n[{tail - head} of {len(text)} characters left out]\n{text[tail:]}"


def refuse(sentence: str) -> SandboxError:
    """Return the error whose text the model gets as the tool's answer."""
    return SandboxError(sentence)


def _dedent(docstring: str) -> str:
    first, _, rest = docstring.strip().partition("\n")
    return f"{first}\n" + "\n".join(line.strip() for line in rest.splitlines()) if rest else first


def _explain(error: ValidationError | ValidationErrorV1) -> str:
    """Say what is wrong without repeating the arguments: they may be a whole file."""
    faults = [
        f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: "
        f"{fault['msg'].removeprefix('Value error, ')}"
        for fault in error.errors()
    ]
    return f"The tool was not called. {'; '.join(faults)}. Correct the arguments and call it again."
