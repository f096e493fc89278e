"""Places where commands run and files live."""

from deerflow.sandbox.base import CommandResult, Match, OutputListener, Sandbox, SandboxProvider

__all__ = ["CommandResult", "Match", "OutputListener", "Sandbox", "SandboxProvider"]
