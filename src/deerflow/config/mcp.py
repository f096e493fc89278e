"""Settings of how MCP servers are used; the servers themselves are in `extensions_config.json`."""

from pydantic import Field

from deerflow.config.section import Section


class McpSettings(Section):
    """What may be changed over HTTP."""

    allow_http_commands: bool = Field(
        False,
        description="Let clients of the HTTP API set `command`, `args` and `env` of MCP servers, and change "
        "entries of the file. Whoever reaches the API can then run programs on this host with the rights of "
        "DeerFlow; off by default for that reason.",
    )
