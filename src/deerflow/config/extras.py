"""DeerFlow's extras, and the command that installs their packages into this installation.

`deerflow` on the package index is an unrelated project, so an extra is installed by the names of its
packages.
"""

import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PURPOSES: Mapping[str, str] = {
    "acp": "agents that run as programs of their own (ACP)",
    "anthropic": "models of Anthropic",
    "ddgs": "web search without a key (DuckDuckGo and others)",
    "deepseek": "DeepSeek's own LangChain class",
    "embeddings": "a better embedding model, for memory and documents",
    "google": "models of Google",
    "langfuse": "traces in Langfuse",
    "mcp": "tools of MCP servers",
    "ollama": "Ollama's own LangChain class",
    "postgres": "PostgreSQL as the database",
    "telemetry": "OpenTelemetry spans",
    "tokens": "exact token counts",
}
"""The purpose of each extra."""

EXTRAS: Mapping[str, str] = {
    "acp": "acp",
    "bpe_openai": "tokens",
    "ddgs": "ddgs",
    "langchain_anthropic": "anthropic",
    "langchain_deepseek": "deepseek",
    "langchain_google_genai": "google",
    "langchain_ollama": "ollama",
    "langfuse": "langfuse",
    "mcp": "mcp",
    "onnxruntime": "embeddings",
    "onnxruntime_extensions": "embeddings",
    "opentelemetry": "telemetry",
    "procrastinate": "postgres",
    "psycopg": "postgres",
    "psycopg_pool": "postgres",
}
"""Maps modules to the extra that provides them."""


@dataclass(frozen=True, slots=True)
class Installer:
    """The command prefix that installs packages into an environment; package names follow it."""

    command: tuple[str, ...]
    is_from_make: bool = False
    """Whether `make` created the environment; it recreates it when the lock file changes."""


def install_hint(package: str) -> str:
    """Return the command that installs `package`, or the extra it belongs to, into this installation."""
    if extra := EXTRAS.get(package):
        return f"{program()} install {extra}"
    name = package.replace("_", "-")
    installer = find_installer()
    if installer is None:
        return f"install the Python package {name} into {sys.prefix}"
    return " ".join(_shown(word) for word in (*installer.command, name))


def module_hint(module: str) -> str:
    """Return how to get a module that the settings name: it may be a package or the user's own code."""
    if module in EXTRAS:
        return install_hint(module)
    # The package index may have an unrelated package with the name of the user's module.
    return f"{install_hint(module)} (for a module of your own, add its folder to PYTHONPATH instead)"


def program() -> str:
    """Return the command that starts this installation's CLI from the current folder."""
    own = Path(sysconfig.get_path("scripts")) / "deerflow"
    found = shutil.which("deerflow")
    if found and (not own.exists() or Path(found).samefile(own)):
        return "deerflow"
    return _shown(str(own)) if own.exists() else f"{_shown(sys.executable)} -m deerflow"


def find_installer(
    *, prefix: Path | None = None, has_pip: bool | None = None, path: str | None = None
) -> Installer | None:
    """Return the installer for an environment; None if there is none.

    Args:
        prefix: The environment's folder; default: this process's environment.
        has_pip: Whether the environment has pip; default: detected.
        path: The search path for programs; default: PATH.
    """
    home = prefix or Path(sys.prefix)
    python = str(home / "bin" / "python") if prefix else sys.executable
    boot = home.parent / ".boot" / "bin" / "uv"
    if home.name == ".venv" and os.access(boot, os.X_OK):
        return Installer((str(boot), "pip", "install", "--python", python), is_from_make=True)
    if find_spec("pip") is not None if has_pip is None else has_pip:
        return Installer((python, "-m", "pip", "install"))
    if uv := shutil.which("uv", path=path):
        return Installer((uv, "pip", "install", "--python", python))
    return None


def _shown(word: str) -> str:
    """Return a word of a command quoted for the shell; a path below the current folder becomes relative."""
    path = Path(word)
    here = Path.cwd()
    is_below = path.is_absolute() and path.is_relative_to(here)
    return shlex.quote(str(path.relative_to(here)) if is_below else word)
