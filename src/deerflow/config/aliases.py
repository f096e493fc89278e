"""Resolves `use:` strings to objects; DeerFlow 2's strings are mapped to the current names."""

import importlib
import re

from deerflow.config.extras import install_hint
from deerflow.errors import ConfigError

_COMPATIBLE = "deerflow.models.compatible:CompatibleChatOpenAI"
_FILE_TOOLS = ("ls", "read_file", "glob", "grep", "write_file", "str_replace")

ALIASES: dict[str, str] = {
    "deerflow.sandbox.local:LocalSandboxProvider": "local",
    "deerflow.community.aio_sandbox:AioSandboxProvider": "aio",
    "deerflow.sandbox.tools:bash_tool": "deerflow.tools.shell:bash_tool",
    **{f"deerflow.sandbox.tools:{name}_tool": f"deerflow.tools.files:{name}_tool" for name in _FILE_TOOLS},
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
        missing = (error.name or module_name).split(".")[0]
        if missing == "deerflow":
            raise ConfigError(f"use: {use!r} is not part of this DeerFlow") from error
        raise ConfigError(
            f"use: {use!r} needs the package {missing}, which is not installed: {install_hint(missing)}"
        ) from error
    except (ImportError, SyntaxError) as error:
        raise ConfigError(f"use: {use!r} cannot be imported: {error}") from error
