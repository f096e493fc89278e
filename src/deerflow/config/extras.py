"""The optional packages of DeerFlow, and the command that installs them into this installation.

The package index's `deerflow` is somebody else's, so an extra is installed by the names of the packages that
it stands for.
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
    "deepseek": "DeepSeek's own LangChain class",
    "google": "models of Google",
    "langfuse": "traces in Langfuse",
    "mcp": "tools of MCP servers",
    "ollama": "Ollama's own LangChain class",
    "postgres": "PostgreSQL as the database",
    "telemetry": "OpenTelemetry spans",
    "tokens": "exact token counts",
}
"""What each extra is for."""

EXTRAS: Mapping[str, str] = {
    "acp": "acp",
    "bpe_openai": "tokens",
    "langchain_anthropic": "anthropic",
    "langchain_deepseek": "deepseek",
    "langchain_google_genai": "google",
    "langchain_ollama": "ollama",
    "langfuse": "langfuse",
    "mcp": "mcp",
    "opentelemetry": "telemetry",
    "procrastinate": "postgres",
    "psycopg": "postgres",
    "psycopg_pool": "postgres",
}
"""Modules that come with an extra."""


@dataclass(frozen=True, slots=True)
class Installer:
    """What installs packages into this installation: the words in front of their names."""

    command: tuple[str, ...]
    is_from_make: bool = False
    """The environment was made by `make`, which makes it anew when its lock changes."""


def install_hint(package: str) -> str:
    """Return the command that installs `package`, or the extra it belongs to, into this installation."""
    if extra := EXTRAS.get(package):
        return f"{program()} install {extra}"
    name = package.replace("_", "-")
    installer = find_installer()
    if installer is None:
        return f"install the Python package {name} into {sys.prefix}"
    return " ".join(_shown(word) for word in (*installer.command, name))


def program() -> str:
    """Return how the command line of this installation is called from the current folder."""
    own = Path(sysconfig.get_path("scripts")) / "deerflow"
    found = shutil.which("deerflow")
    if found and (not own.exists() or Path(found).samefile(own)):
        return "deerflow"
    return _shown(str(own)) if own.exists() else f"{_shown(sys.executable)} -m deerflow"


def find_installer(
    *, prefix: Path | None = None, has_pip: bool | None = None, path: str | None = None
) -> Installer | None:
    """Return what can install packages into an environment; None where nothing can.

    Args:
        prefix: The environment's folder; this one when absent.
        has_pip: Whether pip is part of it; looked for when absent.
        path: The folders to look for programs in; PATH when absent.
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
    """Return a word of a command as it is typed in the current folder."""
    path = Path(word)
    here = Path.cwd()
    is_below = path.is_absolute() and path.is_relative_to(here)
    return shlex.quote(str(path.relative_to(here)) if is_below else word)
