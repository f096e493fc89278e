"""Resolves `use:` strings to objects; DeerFlow 2's strings are mapped to the current names."""

import importlib
import re
from importlib.util import find_spec

from deerflow.config.extras import module_hint
from deerflow.errors import ConfigError

_COMPATIBLE = "deerflow.models.compatible:CompatibleChatOpenAI"
_FILE_TOOLS = ("ls", "read_file", "glob", "grep", "write_file", "str_replace")

_SEARCHING = ("ddg_search", "searxng", "serper", "brave", "tavily", "infoquest", "exa", "firecrawl")
_FETCHING = ("jina_ai", "browserless", "crawl4ai", "exa", "infoquest", "firecrawl", "tavily")
_BOTH = ("groundroute", "fastcrw")
_WEB_TOOLS = {
    "web_search": (*_SEARCHING, *_BOTH),
    "web_fetch": (*_FETCHING, *_BOTH),
    "image_search": ("image_search", "infoquest", "serper", "brave"),
}
"""The web tools of DeerFlow 2 with the packages that have them; the tool reads the provider from `use`."""

ALIASES: dict[str, str] = {
    "deerflow.sandbox.local:LocalSandboxProvider": "local",
    "deerflow.community.aio_sandbox:AioSandboxProvider": "aio",
    "deerflow.sandbox.tools:bash_tool": "deerflow.tools.shell:bash_tool",
    **{f"deerflow.sandbox.tools:{name}_tool": f"deerflow.tools.files:{name}_tool" for name in _FILE_TOOLS},
    **{
        f"deerflow.community.{package}.tools:{name}_tool": f"deerflow.tools.web:{name}_tool"
        for name, packages in _WEB_TOOLS.items()
        for package in packages
    },
    "deerflow.guardrails.builtin:AllowlistProvider": "deerflow.tools.policy_provider:AllowlistProvider",
    "deerflow.models.patched_openai:PatchedChatOpenAI": _COMPATIBLE,
    "deerflow.models.patched_deepseek:PatchedChatDeepSeek": _COMPATIBLE,
    "deerflow.models.patched_minimax:PatchedChatMiniMax": _COMPATIBLE,
    "deerflow.models.patched_mimo:PatchedChatMiMo": _COMPATIBLE,
    "deerflow.models.patched_stepfun:PatchedChatStepFun": _COMPATIBLE,
    "deerflow.models.vllm_provider:VllmChatModel": _COMPATIBLE,
    "deerflow.models.mindie_provider:MindIEChatModel": _COMPATIBLE,
    "deerflow.models.claude_provider:ClaudeChatModel": "langchain_anthropic:ChatAnthropic",
}
"""Maps DeerFlow 2's `use:` strings to ours; a value without a colon is a sandbox tier."""

TOOLS_OF_DEERFLOW_2 = "deerflow.community."
"""Prefix of the tools of DeerFlow 2 that search and read the web."""

_USE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def canonical_use(use: str) -> str:
    """Return the current name for `use`; most strings are returned unchanged."""
    return ALIASES.get(use.strip(), use.strip())


def resolve_use(use: str) -> object:
    """Import and return the object that `use` names as `module:name`."""
    alias = canonical_use(use)
    name = alias if ":" in alias else use.strip()  # a sandbox tier is not an import path
    if not _USE.fullmatch(name):
        raise ConfigError(
            f"use: {use!r} is not of the form `module:name`, such as `langchain_openai:ChatOpenAI`"
        )
    module_name, _, attribute = name.partition(":")
    found: object = _import(module_name, use)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"use: {use!r} cannot be used: {module_name} has no {attribute}")
        found = getattr(found, part)
    return found


def _import(module_name: str, use: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(_why_missing(use, error.name or module_name)) from error
    except (ImportError, SyntaxError) as error:
        raise ConfigError(f"use: {use!r} cannot be imported: {error}") from error


def _why_missing(use: str, module: str) -> str:
    if use.strip().startswith(TOOLS_OF_DEERFLOW_2):
        return f"use: {use!r} is of DeerFlow 2, and this version does not have it"
    package = module.split(".")[0]
    if package == "deerflow":
        return f"use: {use!r} is not part of this DeerFlow"
    if package != module and find_spec(package) is not None:
        return f"use: {use!r} cannot be used: there is no module {module}"
    return f"use: {use!r} needs the package {package}, which is not installed: {module_hint(package)}"
