"""The sub-agents that are always there."""

from deerflow.subagents.builtins.bash import BASH
from deerflow.subagents.builtins.general_purpose import GENERAL_PURPOSE

BUILTINS = (GENERAL_PURPOSE, BASH)

__all__ = ["BASH", "BUILTINS", "GENERAL_PURPOSE"]
