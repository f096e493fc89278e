"""Settings of extensions: MCP servers, enabled skills, custom middlewares and sub-agents."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from deerflow.config.secrets import without_login
from deerflow.config.section import OpenSection, Section, section

_TYPE_NAMES = {"streamable_http": "http", "streamable-http": "http", "streamablehttp": "http"}


class McpOAuthSettings(OpenSection):
    """OAuth access tokens for an MCP server."""

    enabled: bool = Field(True, description="Request access tokens.")
    token_url: str = Field(description="URL of the token endpoint.")
    grant_type: Literal["client_credentials", "refresh_token"] = Field(
        "client_credentials", description="OAuth grant type."
    )
    client_id: str | None = Field(None, description="Client id.")
    client_secret: str | None = Field(None, description="Client secret.")
    refresh_token: str | None = Field(None, description="With `refresh_token`: refresh token.")
    scope: str | None = Field(None, description="Scope to request.")
    audience: str | None = Field(None, description="Audience to request.")
    token_field: str = Field("access_token", description="Field of the response with the token.")
    token_type_field: str = Field("token_type", description="Field of the response with the token's type.")
    expires_in_field: str = Field(
        "expires_in", description="Field of the response with its lifetime in seconds."
    )
    default_token_type: str = Field("Bearer", description="Token type if the response has none.")
    refresh_skew_seconds: int = Field(
        60, ge=0, description="Seconds before its expiry at which a token is renewed."
    )
    extra_token_params: dict[str, str] = Field({}, description="Further fields of the token request.")


class McpRoutingSettings(Section):
    """Mentioning tools in the prompt when the user's message contains a keyword."""

    mode: Literal["off", "prefer"] = Field("off", description="`prefer` mentions the tools, `off` does not.")
    priority: int = Field(0, description="Tools with a higher priority are mentioned first.")
    keywords: tuple[str, ...] = Field((), description="Words that select the tools.")


class McpToolOverride(OpenSection):
    """Changed settings of one tool of a server."""

    routing: McpRoutingSettings = section(McpRoutingSettings)


class McpServerSettings(OpenSection):
    """One MCP server; further keys are kept."""

    enabled: bool = Field(True, description="Use the server.")
    set_over_http: bool = Field(
        False,
        description="Set by the HTTP API in entries that it wrote: their addresses must be public, or in "
        "`runs.webhook_allow_cidrs`. Entries without it are the operator's.",
    )
    type: Literal["stdio", "sse", "http"] = Field(
        "stdio", description="Transport of the server; also `transport`."
    )
    command: str | None = Field(None, description="With `stdio`: the program.")
    args: tuple[str, ...] = Field((), description="With `stdio`: arguments of the program.")
    env: dict[str, str] = Field(
        {}, description="With `stdio`: environment variables, besides `PATH`, `HOME` and the like."
    )
    url: str | None = Field(None, description="With `sse` and `http`: URL of the server.")
    headers: dict[str, str] = Field({}, description="With `sse` and `http`: headers of every request.")
    oauth: McpOAuthSettings | None = Field(None, description="With `sse` and `http`: access tokens.")
    description: str = Field("", description="Purpose of the server, shown to people.")
    routing: McpRoutingSettings = section(McpRoutingSettings)
    tools: dict[str, McpToolOverride] = Field(
        {}, description="Changed settings of single tools, by the tool's name."
    )
    tool_name_prefix: bool = Field(True, description="Prefix the names of its tools with the server's name.")
    tool_call_timeout: float | None = Field(
        None, gt=0, description="Maximum duration of a tool call in seconds. Absent: 600."
    )
    session_init_timeout: float | None = Field(
        60, gt=0, description="Maximum duration of its start in seconds."
    )
    run_wait_seconds: float = Field(
        5, ge=0, description="Seconds that a run waits for the server; then it continues without its tools."
    )

    @model_validator(mode="before")
    @classmethod
    def _other_spellings_of_the_type(cls, data: Any) -> Any:
        """Accept `transport` for `type`, the SDK's names, and a bare `url` as HTTP."""
        if not isinstance(data, Mapping):
            return data
        named = data.get("type") or data.get("transport")
        if named is None:
            named = "http" if data.get("url") and not data.get("command") else "stdio"
        kind = _TYPE_NAMES.get(named.lower(), named.lower()) if isinstance(named, str) else named
        return {**{key: value for key, value in data.items() if key != "transport"}, "type": kind}

    @model_validator(mode="after")
    def _can_be_reached(self) -> "McpServerSettings":
        needed = "command" if self.type == "stdio" else "url"
        if self.enabled and getattr(self, needed) is None:
            raise ValueError(f"a server of type {self.type} needs `{needed}`")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url {without_login(self.url)!r} has to begin with http:// or https://")
        return self


class SkillState(OpenSection):
    """State of one skill."""

    enabled: bool = Field(True, description="Allow agents to use the skill.")


class ExtensionsSettings(Section):
    """MCP servers, skills, middlewares, sub-agents; a key set in `config.yaml` replaces that of the file."""

    mcp_servers: dict[str, McpServerSettings] = Field(
        {}, alias="mcpServers", description="MCP servers by name."
    )
    skills: dict[str, SkillState] = Field({}, description="Skills by name. Absent ones are enabled.")
    middlewares: tuple[str, ...] = Field(
        (),
        description="Custom middlewares, as `module:Class`: subclasses of LangChain's `AgentMiddleware`, "
        "created without arguments.",
    )
    agents: tuple[str, ...] = Field(
        (),
        description="Custom sub-agents, as `module:Class`: classes with `name`, `description`, `prompt` and, "
        "optionally, `tools`, a list of tool names and LangChain tools.",
    )


class McpSettings(Section):
    """Use of the MCP servers in `extensions_config.json`."""

    allow_http_commands: bool = Field(
        False,
        description="Allow clients of the HTTP API to set `command`, `args` and `env` of MCP servers, and to "
        "change entries of the file. Off by default: every client could then run programs on this host with "
        "DeerFlow's permissions.",
    )
    tool_approval: Literal["off", "changes", "all"] = Field(
        "changes",
        description="Which tools need a person's approval before agents get them. `changes`: tools whose "
        "description, input schema or hints changed since they were first seen; `all`: new ones too; `off`: "
        "none.",
    )
