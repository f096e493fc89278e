"""Logging settings."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from deerflow.config.section import Section

_OTHER_NAMES = {"warn": "warning", "fatal": "critical", "trace": "debug"}


def _plain_level(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    level = value.strip().lower()
    return _OTHER_NAMES.get(level, level)


LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_plain_level)]


class EnhanceSettings(Section):
    """The form of log lines."""

    enabled: bool = Field(False, description="Use `format`; otherwise lines are text.")
    format: Literal["text", "json"] = Field("text", description="Lines for people or for machines.")


class LoggingSettings(Section):
    """How log lines look."""

    enhance: EnhanceSettings = Field(EnhanceSettings.model_construct(), description="The form of log lines.")

    @property
    def format(self) -> Literal["text", "json"]:
        """The effective log format."""
        return self.enhance.format if self.enhance.enabled else "text"
