"""Which tools an agent gets: those of the settings or our own, the built-in ones, and what others add."""

import logging
from collections.abc import Iterable, Iterator, Sequence

from langchain_core.tools import BaseTool

from deerflow.config import ModelSettings, Settings, ToolSettings, resolve_use
from deerflow.errors import ConfigError
from deerflow.tools.clarify import ask_clarification_tool
from deerflow.tools.files import (
    glob_tool,
    grep_tool,
    ls_tool,
    read_file_tool,
    str_replace_tool,
    write_file_tool,
)
from deerflow.tools.present import present_files_tool
from deerflow.tools.shell import bash_tool
from deerflow.tools.vision import view_image_tool

logger = logging.getLogger(__name__)

DEFAULT_TOOLS: tuple[tuple[str, BaseTool], ...] = (
    ("file:read", ls_tool),
    ("file:read", read_file_tool),
    ("file:read", glob_tool),
    ("file:read", grep_tool),
    ("file:write", write_file_tool),
    ("file:write", str_replace_tool),
    ("bash", bash_tool),
)
"""What there is without a `tools:` section, by group."""


def get_available_tools(
    settings: Settings,
    *,
    groups: Sequence[str] | None = None,
    model: ModelSettings | None = None,
    subagent_enabled: bool = False,
    task_tool: BaseTool | None = None,
    extra: Sequence[BaseTool] = (),
) -> list[BaseTool]:
    """Return the tools of one agent, each name once.

    Args:
        groups: The groups the agent may use; None for all. Built-in and extra tools have no group.
        model: The agent's model; one that can see gets `view_image`.
        task_tool: How it delegates, offered when `subagent_enabled`.
        extra: Tools from elsewhere, such as MCP servers.
    """
    tools = [tool for group, tool in _grouped(settings) if groups is None or group in groups]
    tools += [present_files_tool, ask_clarification_tool]
    if model is not None and model.supports_vision:
        tools.append(view_image_tool)
    if subagent_enabled and task_tool is not None:
        tools.append(task_tool)
    return list(_each_name_once([*tools, *extra]))


def _grouped(settings: Settings) -> Iterator[tuple[str, BaseTool]]:
    if not settings.tools and "tools" not in settings.model_fields_set:
        yield from DEFAULT_TOOLS
    for entry in settings.tools:
        if (tool := _resolve(entry)) is not None:
            yield entry.group, tool


def _resolve(entry: ToolSettings) -> BaseTool | None:
    """Return the entry's tool under the name it has in the settings; None when it is not installed."""
    try:
        found = resolve_use(entry.use)
        if not isinstance(found, BaseTool) and callable(found):
            found = found(entry)  # a factory, for tools that need their own keys
    except (ConfigError, TypeError, ValueError) as error:
        logger.warning("tool %s is left out: %s", entry.name, error)
        return None
    if not isinstance(found, BaseTool):
        logger.warning("tool %s is left out: %s is not a tool", entry.name, entry.use)
        return None
    return found if found.name == entry.name else found.model_copy(update={"name": entry.name})


def _each_name_once(tools: Iterable[BaseTool]) -> Iterator[BaseTool]:
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            logger.warning("tool %s is there twice; the first one is used", tool.name)
            continue
        seen.add(tool.name)
        yield tool
