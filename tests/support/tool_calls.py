"""Calls tools the way an agent does: through a real graph that injects the runtime."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool
from pydantic import Field
from typing_extensions import override

from deerflow.context import RunContext


class ScriptedCalls(BaseChatModel):
    """A model that says what it was given, one message per turn, then `done`."""

    script: list[AIMessage]
    seen: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    @override
    def _llm_type(self) -> str:
        return "scripted-calls"

    @override
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    @override
    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append(messages)
        said = self.script[len(self.seen) - 1] if len(self.seen) <= len(self.script) else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=said)])


def tool_call(name: str, number: int = 1, /, **args: Any) -> dict[str, Any]:
    """Return one call as a model writes it."""
    return {"name": name, "args": args, "id": f"call-{number}", "type": "tool_call"}


async def run_calls(
    tools: list[BaseTool], context: RunContext, *calls: dict[str, Any], state_schema: Any = None
) -> tuple[dict[str, Any], ScriptedCalls]:
    """Let an agent make `calls` in one turn; return the final state and the model."""
    model = ScriptedCalls(script=[AIMessage("", tool_calls=list(calls))])
    agent: Any = create_agent(model, tools, context_schema=RunContext, state_schema=state_schema)
    state = await agent.ainvoke({"messages": [HumanMessage("go")]}, context=context)
    return state, model


async def answer_of(tool: BaseTool, context: RunContext, /, **args: Any) -> ToolMessage:
    """Return what the model gets back from one call of `tool`."""
    state, _ = await run_calls([tool], context, tool_call(tool.name, **args))
    return next(message for message in state["messages"] if isinstance(message, ToolMessage))
