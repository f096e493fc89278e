"""The built-in sub-agents."""

from deerflow.subagents.builtins.bash import BASH
from deerflow.subagents.builtins.general_purpose import GENERAL_PURPOSE

BUILTINS = (GENERAL_PURPOSE, BASH)

__all__ = ["BASH", "BUILTINS", "GENERAL_PURPOSE"]
