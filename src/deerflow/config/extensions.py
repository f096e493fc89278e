"""Settings in `extensions_config.json`: MCP servers, enabled skills, custom middlewares."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from deerflow.config.secrets import without_login
from deerflow.config.section import OpenSection, Section

_TYPE_NAMES = {"streamable_http": "http", "streamable-http": "http", "streamablehttp": "http"}


class McpOAuthSettings(OpenSection):
    """How a token for an MCP server is fetched."""

    enabled: bool = Field(True, description="Fetch one.")
    token_url: str = Field(description="Where.")
    grant_type: Literal["client_credentials", "refresh_token"] = Field(
        "client_credentials", description="What it is fetched with."
    )
    client_id: str | None = Field(None, description="Who we are.")
    client_secret: str | None = Field(None, description="What proves it.")
    refresh_token: str | None = Field(None, description="With `refresh_token`: the token.")
    scope: str | None = Field(None, description="What we ask for.")
    audience: str | None = Field(None, description="For whom.")
    token_field: str = Field("access_token", description="Field of the answer that has the token.")
    token_type_field: str = Field("token_type", description="Field of the answer that has its type.")
    expires_in_field: str = Field("expires_in", description="Field of the answer that has its seconds.")
    default_token_type: str = Field("Bearer", description="The type when the answer names none.")
    refresh_skew_seconds: int = Field(60, ge=0, description="Seconds before its end that it is renewed.")
    extra_token_params: dict[str, str] = Field({}, description="Further fields of the request.")


class McpRoutingSettings(Section):
    """When the model is pointed at a server's tools."""

    mode: Literal["off", "prefer"] = Field("off", description="`prefer` names them when a keyword is said.")
    priority: int = Field(0, description="Higher ones come first.")
    keywords: tuple[str, ...] = Field((), description="Words that point to them.")


class McpToolOverride(OpenSection):
    """What is different about one tool of a server."""

    routing: McpRoutingSettings = Field(
        McpRoutingSettings.model_construct(), description="When it is pointed at."
    )


class McpTaskToolset(Section):
    """Three tools of a server that together are one long-running task."""

    name: str = Field(min_length=1, description="The task's name.")
    submit_tool: str = Field(min_length=1, description="Starts it.")
    status_tool: str = Field(min_length=1, description="Says how far it is.")
    cancel_tool: str = Field(min_length=1, description="Stops it.")


class McpServerSettings(OpenSection):
    """One MCP server; keys not listed here are kept as they are."""

    enabled: bool = Field(True, description="Use it.")
    set_over_http: bool = Field(
        False,
        description="Written by the HTTP API for entries that came through it: their addresses must be "
        "public, or in `runs.webhook_allow_cidrs`. Entries without it are the operator's.",
    )
    type: Literal["stdio", "sse", "http"] = Field("stdio", description="How it is reached; also `transport`.")
    command: str | None = Field(None, description="With `stdio`: the program.")
    args: tuple[str, ...] = Field((), description="With `stdio`: its arguments.")
    env: dict[str, str] = Field({}, description="With `stdio`: the only variables it gets beside the usual.")
    url: str | None = Field(None, description="With `sse` and `http`: its address.")
    headers: dict[str, str] = Field({}, description="With `sse` and `http`: headers of every request.")
    oauth: McpOAuthSettings | None = Field(None, description="With `sse` and `http`: where tokens come from.")
    description: str = Field("", description="What it is for.")
    routing: McpRoutingSettings = Field(
        McpRoutingSettings.model_construct(), description="When its tools are pointed at."
    )
    tools: dict[str, McpToolOverride] = Field({}, description="What is different about single tools.")
    tool_name_prefix: bool = Field(True, description="Put the server's name before its tools' names.")
    tool_call_timeout: float | None = Field(
        None, gt=0, description="Seconds that one call may take; 600 when absent."
    )
    session_init_timeout: float | None = Field(60, gt=0, description="Seconds that it may take to start.")
    run_wait_seconds: float = Field(
        5, ge=0, description="Seconds that a run waits for it to be ready; then it goes on without its tools."
    )
    task_toolsets: tuple[McpTaskToolset, ...] = Field((), description="Its long-running tasks; not used yet.")

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
    """Whether one skill is on."""

    enabled: bool = Field(True, description="Agents may use it.")


class ExtensionsSettings(Section):
    """What `extensions_config.json` says."""

    mcp_servers: dict[str, McpServerSettings] = Field(
        {}, alias="mcpServers", description="MCP servers by name."
    )
    mcp_interceptors: tuple[str, ...] = Field(
        (),
        alias="mcpInterceptors",
        description="Builders of MCP call interceptors, as `module:name`; not used yet.",
    )
    skills: dict[str, SkillState] = Field({}, description="Skills by name; one that is absent is on.")
    middlewares: tuple[str, ...] = Field(
        (), description="Middlewares of your own, as `module:Class`; not used yet."
    )
