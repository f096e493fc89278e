"""Settings of channels: the chat services from which DeerFlow receives messages."""

from typing import Any

from pydantic import Field

from deerflow.config.section import OpenSection, Section


class ChannelSettings(OpenSection):
    """One chat service; keys not listed here (tokens, rooms, …) go to its channel as they are."""

    enabled: bool = Field(False, description="Listen to it.")
    allowed_users: tuple[str, ...] = Field(
        (), description="Who may write to it; empty: as the service allows."
    )
    session: dict[str, Any] = Field({}, description="Assistant, config and context of its runs.")


class ChannelsSettings(Section):
    """The chat services that DeerFlow listens to."""

    inbound_queue_maxsize: int = Field(1000, ge=1, description="Messages waiting to be answered.")
    max_concurrency: int = Field(5, ge=1, description="Messages answered at once.")
    shutdown_grace_period_seconds: float = Field(3, ge=0, description="Seconds to finish when stopping.")
    session: dict[str, Any] = Field({}, description="Assistant, config and context of all runs.")
    users: dict[str, Any] = Field({}, description="The same, by user's id.")
    feishu: ChannelSettings = Field(ChannelSettings.model_construct(), description="Feishu or Lark.")
    slack: ChannelSettings = Field(ChannelSettings.model_construct(), description="Slack.")
    telegram: ChannelSettings = Field(ChannelSettings.model_construct(), description="Telegram.")
    wecom: ChannelSettings = Field(ChannelSettings.model_construct(), description="WeCom.")
    dingtalk: ChannelSettings = Field(ChannelSettings.model_construct(), description="DingTalk.")
    discord: ChannelSettings = Field(ChannelSettings.model_construct(), description="Discord.")
    wechat: ChannelSettings = Field(ChannelSettings.model_construct(), description="WeChat.")
    buzz: ChannelSettings = Field(ChannelSettings.model_construct(), description="Buzz.")
    github: ChannelSettings = Field(ChannelSettings.model_construct(), description="GitHub.")


class ChannelConnectionSettings(OpenSection):
    """Whether users may connect their own account of one service."""

    enabled: bool = Field(False, description="Offer it.")


class ChannelConnectionsSettings(Section):
    """Whether users may connect their own accounts."""

    enabled: bool = Field(False, description="Offer it.")
    require_bound_identity: bool = Field(True, description="Answer only people whose account is known.")
    telegram: ChannelConnectionSettings = Field(
        ChannelConnectionSettings.model_construct(), description="Telegram."
    )
    slack: ChannelConnectionSettings = Field(
        ChannelConnectionSettings.model_construct(), description="Slack."
    )
    discord: ChannelConnectionSettings = Field(
        ChannelConnectionSettings.model_construct(), description="Discord."
    )
    feishu: ChannelConnectionSettings = Field(
        ChannelConnectionSettings.model_construct(), description="Feishu or Lark."
    )
    dingtalk: ChannelConnectionSettings = Field(
        ChannelConnectionSettings.model_construct(), description="DingTalk."
    )
    wechat: ChannelConnectionSettings = Field(
        ChannelConnectionSettings.model_construct(), description="WeChat."
    )
    wecom: ChannelConnectionSettings = Field(
        ChannelConnectionSettings.model_construct(), description="WeCom."
    )
    buzz: ChannelConnectionSettings = Field(ChannelConnectionSettings.model_construct(), description="Buzz.")
