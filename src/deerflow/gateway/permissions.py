"""Who may do what over HTTP, beyond owning a thread."""

from deerflow.config import Settings


def may_set_commands(settings: Settings) -> bool:
    """Tell whether a caller may decide which programs run on this host; every route that would ask here."""
    return settings.mcp.allow_http_commands
