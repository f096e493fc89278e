"""Selects an agent's tools: the sandbox's, the settings', built-in ones, sub-agents', MCP and ACP tools."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from langchain_core.tools import BaseTool

from deerflow.config import ModelSettings, Settings, ToolSettings, resolve_use
from deerflow.config.aliases import canonical_use
from deerflow.errors import ConfigError
from deerflow.plugins import find_plugin, find_plugins
from deerflow.tools.clarify import ask_clarification_tool
from deerflow.tools.deferred import defer, tool_search_tool
from deerflow.tools.edits import edit_files_tool
from deerflow.tools.files import (
    glob_tool,
    grep_tool,
    ls_tool,
    read_file_tool,
    str_replace_tool,
    with_max_results,
    write_file_tool,
)
from deerflow.tools.present import present_files_tool
from deerflow.tools.search_files import search_files_tool
from deerflow.tools.shell import bash_tool, python_tool
from deerflow.tools.vision import view_image_tool
from deerflow.web.page_providers import LOCAL, REMOTE_FETCHES
from deerflow.web.providers import provider_name
from deerflow.web.search_providers import IMAGE_SEARCHES, SEARCHES

logger = logging.getLogger(__name__)

GROUP = "deerflow.tools"
"""Entry-point group of tools, DeerFlow's own included."""
SANDBOX_TOOLS: tuple[tuple[str, BaseTool], ...] = (
    ("file:read", ls_tool),
    ("file:read", read_file_tool),
    ("file:read", glob_tool),
    ("file:read", grep_tool),
    ("file:read", search_files_tool),
    ("file:write", write_file_tool),
    ("file:write", str_replace_tool),
    ("file:write", edit_files_tool),
    ("bash", bash_tool),
    ("bash", python_tool),
)
"""The tools that work in the sandbox, with their groups."""
PROVIDERS: Mapping[str, Collection[str]] = {
    "web_search": SEARCHES.keys(),
    "image_search": IMAGE_SEARCHES.keys(),
    "web_fetch": {LOCAL, *REMOTE_FETCHES},
}
"""The web tools, with the short names of their providers."""
SANDBOX_MODULES = frozenset(
    {"deerflow.tools", *(f"deerflow.tools.{name}" for name in ("edits", "files", "search_files", "shell"))}
)


def get_available_tools(
    settings: Settings,
    *,
    groups: Sequence[str] | None = None,
    include_mcp: bool = True,
    model_name: str | None = None,
    subagent_enabled: bool = False,
    models: Mapping[str, ModelSettings] | None = None,
    subagent_tools: Sequence[BaseTool] = (),
    mcp_tools: Sequence[BaseTool] = (),
    acp_tools: Sequence[BaseTool] = (),
) -> list[BaseTool]:
    """Return the tools of one agent from five classes; for duplicate names the first class wins.

    Args:
        groups: The groups the agent may use; None for all. Only configured tools have groups.
        include_mcp: Include the tools of MCP servers.
        model_name: The agent's model; one with vision gets `view_image`.
        subagent_enabled: Include the tools for delegation.
        models: The models by name; by default those of the settings.
        subagent_tools: The tools for delegation, `task` first.
        mcp_tools: Tools of MCP servers; with `tool_search` they are deferred.
        acp_tools: Tools that call ACP agents.
    """
    known = {model.name: model for model in settings.models} if models is None else models
    model = known.get(model_name) if model_name is not None else None
    built_in = [present_files_tool, ask_clarification_tool]
    if model is not None and model.supports_vision:
        built_in.append(view_image_tool)
    offered_by_servers = list(mcp_tools) if include_mcp else []
    if offered_by_servers and settings.tool_search.enabled:
        built_in.append(tool_search_tool)
        offered_by_servers = defer(offered_by_servers)
    classes = {
        "the settings": [tool for group, tool in _configured(settings) if groups is None or group in groups],
        "the built-in ones": built_in,
        "the sub-agents": subagent_tools if subagent_enabled else (),
        "MCP servers": offered_by_servers,
        "ACP agents": acp_tools,
    }
    return list(_each_name_once(classes))


def tool_groups(settings: Settings) -> list[str]:
    """Return the tool groups that agents can be assigned."""
    named = [group.name for group in settings.tool_groups]
    used = [group for group, _ in _configured(settings) if group is not None]
    return list(dict.fromkeys([*used, *named]))


def tool_problems(settings: Settings) -> Iterator[tuple[ToolSettings, str]]:
    """Yield every `tools:` entry that agents do not get, and why."""
    known: set[str] = set()
    for entry in settings.tools:
        try:
            _load(entry)
        except ConfigError as error:
            yield entry, str(error)
            continue
        if entry.name in known:
            yield entry, "another entry has the same name"
        known.add(entry.name)


def _configured(settings: Settings) -> Iterator[tuple[str | None, BaseTool]]:
    """Yield the sandbox tools, as the `tools:` section changes them, and its other tools, with their groups.

    An entry overrides the sandbox tool of its name. A section that names sandbox tools by their path, as
    DeerFlow 2's file does, is the whole list of them.
    """
    entries = {entry.name: entry for entry in reversed(settings.tools)}
    is_whole_list = any(_is_sandbox_tool(entry) for entry in settings.tools)
    for group, tool in () if is_whole_list else SANDBOX_TOOLS:
        entry = entries.pop(tool.name, None)
        if entry is None:
            yield group, tool
        elif (own := _resolve(entry)) is not None:
            yield entry.group or group, own
    groups = {tool.name: group for group, tool in SANDBOX_TOOLS}
    for entry in settings.tools:
        if entries.get(entry.name) is entry and (own := _resolve(entry)) is not None:
            yield entry.group or groups.get(entry.name), own


def _is_sandbox_tool(entry: ToolSettings) -> bool:
    """Return whether an entry names a sandbox tool by its path, ours or DeerFlow 2's."""
    module, colon, name = canonical_use(entry.use or "").partition(":")
    return bool(colon) and module in SANDBOX_MODULES and name.endswith("_tool")


def _resolve(entry: ToolSettings) -> BaseTool | None:
    """Return the entry's tool; None if it cannot be loaded."""
    try:
        return _load(entry)
    except ConfigError as error:
        logger.debug("tool %s is left out: %s", entry.name, error)  # reported once, at start-up
        return None


def _load(entry: ToolSettings) -> BaseTool:
    """Return the entry's tool under its configured name."""
    use = _path_of(entry)
    found = resolve_use(use) if ":" in use else find_plugin(GROUP, use).load()
    if not isinstance(found, BaseTool) and callable(found):
        try:
            found = found(entry)  # a factory, for tools that need their own settings
        except Exception as error:  # code of another package, which may raise anything
            raise ConfigError(f"{use} cannot be made: {error}") from error
    if not isinstance(found, BaseTool):
        raise ConfigError(f"{use} is not a tool")
    tool = with_max_results(found, (entry.model_extra or {}).get("max_results"))
    return tool if tool.name == entry.name else tool.model_copy(update={"name": entry.name})


def _path_of(entry: ToolSettings) -> str:
    """Return the path or plug-in of an entry's tool; for web tools `use` may be the name of a provider."""
    use = (entry.use or entry.name).strip()
    providers = PROVIDERS.get(entry.name)
    if ":" in use or providers is None:
        return use
    if provider_name(use) in providers:
        return entry.name
    if use not in find_plugins(GROUP):
        known = ", ".join(sorted(providers))
        raise ConfigError(f"use: {entry.name} has no provider {use!r}; use one of {known}, or `module:name`")
    return use


def _each_name_once(classes: Mapping[str, Iterable[BaseTool]]) -> Iterator[BaseTool]:
    owners: dict[str, str] = {}
    for owner, tools in classes.items():
        for tool in tools:
            if tool.name in owners:
                logger.warning(
                    "tool %s of %s is left out: one of %s has that name", tool.name, owner, owners[tool.name]
                )
                continue
            owners[tool.name] = owner
            yield tool
