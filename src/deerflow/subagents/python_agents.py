"""Loads sub-agents defined by Python classes: `extensions.agents`, and entry points of `deerflow.agents`.

A class has the attributes `name`, `description`, `prompt` and, optionally, `tools` (names of tools and
LangChain tools; absent: all tools), `model` and `skills`. Its limits are settings (`subagents.agents`). One
that cannot be used costs only itself.
"""

from collections.abc import Iterable
from typing import Any

from langchain_core.tools import BaseTool

from deerflow.config.effect import Fault
from deerflow.errors import ConfigError
from deerflow.plugins import load_extensions
from deerflow.subagents.config import SubagentConfig

GROUP = "deerflow.agents"


def load_agents(uses: Iterable[str]) -> tuple[list[SubagentConfig], list[Fault]]:
    """Return the sub-agent types in use, and the faults of those that cannot be used."""
    return load_extensions(GROUP, uses, subagent_of, setting="extensions.agents")


def subagent_of(found: object) -> SubagentConfig:
    """Return the sub-agent type that a class, or an instance of it, describes."""
    texts = {key: getattr(found, key, None) for key in ("name", "description", "prompt")}
    for key, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"{found!r} needs a text as attribute `{key}`")
    options: dict[str, Any] = {}
    if (model := getattr(found, "model", None)) is not None:
        options["model"] = str(model)
    if (skills := getattr(found, "skills", None)) is not None:
        options["skills"] = tuple(skills)
    tools = _tools(found)
    if tools is not None:
        options["tools"] = tuple(tool if isinstance(tool, str) else tool.name for tool in tools)
        options["extra_tools"] = tuple(tool for tool in tools if isinstance(tool, BaseTool))
        options["needs_shell"] = options["tools"] == ("bash",)
    return SubagentConfig(texts["name"], texts["description"], texts["prompt"], **options)  # type: ignore[arg-type]


def _tools(found: object) -> list[str | BaseTool] | None:
    tools = getattr(found, "tools", None)
    if tools is None:
        return None
    if isinstance(tools, str) or not all(isinstance(tool, str | BaseTool) for tool in tools):
        raise ConfigError(f"{found!r}: `tools` must list names of tools and LangChain tools")
    return list(tools)
