"""Settings of channels: the chat services from which DeerFlow receives messages."""

from typing import Any, Literal

from pydantic import Field

from deerflow.config.section import OpenSection, Section, section


class ChannelSettings(OpenSection):
    """One chat service; further keys, such as tokens, are passed to its channel."""

    enabled: bool = Field(False, description="Receive messages from it.")
    allowed_users: tuple[str, ...] = Field(
        (), description="Ids of users whose messages are answered. Empty: all whom the service allows."
    )
    session: dict[str, Any] = Field({}, description="Assistant, config and context of its runs.")


class ChannelsSettings(Section):
    """Chat services from which messages are received."""

    inbound_queue_maxsize: int = Field(1000, ge=1, description="Maximum number of messages waiting.")
    max_concurrency: int = Field(5, ge=1, description="Maximum number of messages answered at once.")
    shutdown_grace_period_seconds: float = Field(
        3, ge=0, description="Seconds that answers may take to finish when the server stops."
    )
    session: dict[str, Any] = Field({}, description="Assistant, config and context of all runs.")
    users: dict[str, Any] = Field({}, description="The same for single users, by user id.")
    feishu: ChannelSettings = section(ChannelSettings, "Feishu or Lark.")
    slack: ChannelSettings = section(ChannelSettings, "Slack.")
    telegram: ChannelSettings = section(ChannelSettings, "Telegram.")
    wecom: ChannelSettings = section(ChannelSettings, "WeCom.")
    dingtalk: ChannelSettings = section(ChannelSettings, "DingTalk.")
    discord: ChannelSettings = section(ChannelSettings, "Discord.")
    wechat: ChannelSettings = section(ChannelSettings, "WeChat.")
    buzz: ChannelSettings = section(ChannelSettings, "Buzz.")
    github: ChannelSettings = section(ChannelSettings, "GitHub.")


class ChannelConnectionSettings(OpenSection):
    """Connecting accounts of one service."""

    enabled: bool = Field(False, description="Offer it.")


class ChannelConnectionsSettings(Section):
    """Connecting users to their own accounts of chat services."""

    enabled: bool = Field(False, description="Offer it.")
    require_bound_identity: bool = Field(True, description="Answer only users with a connected account.")
    telegram: ChannelConnectionSettings = section(ChannelConnectionSettings, "Telegram.")
    slack: ChannelConnectionSettings = section(ChannelConnectionSettings, "Slack.")
    discord: ChannelConnectionSettings = section(ChannelConnectionSettings, "Discord.")
    feishu: ChannelConnectionSettings = section(ChannelConnectionSettings, "Feishu or Lark.")
    dingtalk: ChannelConnectionSettings = section(ChannelConnectionSettings, "DingTalk.")
    wechat: ChannelConnectionSettings = section(ChannelConnectionSettings, "WeChat.")
    wecom: ChannelConnectionSettings = section(ChannelConnectionSettings, "WeCom.")
    buzz: ChannelConnectionSettings = section(ChannelConnectionSettings, "Buzz.")


class DedupeStorageSettings(Section):
    """Record of messages that were received, so that none is answered twice."""

    backend: Literal["auto", "memory", "postgres"] = Field("auto", description="Where it is stored.")
