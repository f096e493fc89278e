"""Permissions over HTTP beyond owning a thread."""

from deerflow.config import Settings


def may_set_commands(settings: Settings) -> bool:
    """Return whether a caller may choose the programs that run on this host; checked by every such route."""
    return settings.mcp.allow_http_commands
