"""Settings for the use of MCP servers; the servers are defined in `extensions_config.json`."""

from typing import Literal

from pydantic import Field

from deerflow.config.section import Section


class McpSettings(Section):
    """What may be changed over HTTP, and which tools need an approval."""

    allow_http_commands: bool = Field(
        False,
        description="Let clients of the HTTP API set `command`, `args` and `env` of MCP servers, and change "
        "entries of the file. Whoever reaches the API can then run programs on this host with the rights of "
        "DeerFlow; off by default for that reason.",
    )
    tool_approval: Literal["off", "changes", "all"] = Field(
        "changes",
        description="Which tools are withheld until a person approves them. `changes`: those whose "
        "description, input schema or hints differ from when they were first seen; `all`: new ones too; "
        "`off`: none.",
    )
