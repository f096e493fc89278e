"""Turns async functions into tools, and DeerFlow's errors into error results for the model."""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.tools.base import FILTERED_ARGS
from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator
from pydantic.v1 import ValidationError as ValidationErrorV1
from typing_extensions import override

from deerflow.context import RunContext
from deerflow.errors import DeerFlowError, SandboxError

Runtime = ToolRuntime[RunContext, Any]
"""What a tool receives besides its arguments: the run's context, the state and the call's id."""

MAX_PATH_CHARS = 4096
SAFE_TO_REPEAT = "is_safe_to_repeat"
"""Metadata key of a tool that is idempotent: calling it twice has the same effect as once."""


def tool_of(
    name: str,
    arguments: type[BaseModel],
    *,
    return_direct: bool = False,
    with_artifact: bool = False,
    is_safe_to_repeat: bool = False,
) -> Callable[[Callable[..., Awaitable[Any]]], BaseTool]:
    """Make a tool of an async function; its docstring is the description for the model.

    Args:
        arguments: The schema of the model's arguments; the function also takes `runtime`.
        return_direct: The agent's turn ends after the tool.
        with_artifact: The function returns the text and an artifact for clients.
        is_safe_to_repeat: It is idempotent or read-only, so it may run again after a crash.
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
    """A tool whose function takes its arguments and `runtime`, and no parameters injected by LangChain.

    LangChain inspects the annotations of `_arun` and of the schema for such parameters before every call;
    here `_arun` has few, and the schema none.
    """

    @override
    def _filter_injected_args(self, tool_input: dict[str, Any]) -> dict[str, Any]:
        hidden = {*FILTERED_ARGS, *self._injected_args_keys}
        return {name: value for name, value in tool_input.items() if name not in hidden}

    @override
    async def _arun(self, *args: Any, **values: Any) -> Any:
        assert self.coroutine is not None  # set by `tool_of`
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


class AsksFirst(BaseModel):
    """Arguments of a tool some of whose calls need a person's approval, whatever the rules' default is."""

    @classmethod
    def asked_about(cls, args: Mapping[str, Any]) -> str:
        """Return the code of the reason why this call needs approval; empty if it needs none."""
        raise NotImplementedError


def _plain(text: str) -> str:
    if "\0" in text:
        raise ValueError("has a NUL character; leave it out")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("has half a surrogate pair; send whole characters") from error
    return text


PlainText = Annotated[str, AfterValidator(_plain)]
"""Text that every shell and file system accepts."""

VirtualPath = Annotated[str, AfterValidator(_plain), Field(min_length=1, max_length=MAX_PATH_CHARS)]
"""A path as the model sees it, such as `/mnt/user-data/workspace/notes.md`."""


def clip_middle(text: str, limit: int) -> str:
    """Return the start and end of `text` and the number of characters omitted; 0 means no limit."""
    if limit <= 0 or len(text) <= limit:
        return text
    head = limit // 2
    tail = len(text) - (limit - head)
    return f"{text[:head]}\n[{tail - head} of {len(text)} characters left out]\n{text[tail:]}"


def refuse(sentence: str) -> SandboxError:
    """Return an error whose text becomes the tool's result for the model."""
    return SandboxError(sentence)


def _dedent(docstring: str) -> str:
    first, _, rest = docstring.strip().partition("\n")
    return f"{first}\n" + "\n".join(line.strip() for line in rest.splitlines()) if rest else first


def _explain(error: ValidationError | ValidationErrorV1) -> str:
    """Describe validation errors without repeating the arguments: they may be a whole file."""
    faults = [
        f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: "
        f"{fault['msg'].removeprefix('Value error, ')}"
        for fault in error.errors()
    ]
    return f"The tool was not called. {'; '.join(faults)}. Correct the arguments and call it again."
