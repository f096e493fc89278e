"""Named chat models: how they are found, built, reached and replaced when they fail."""

from deerflow.models.discovery import Discovery, discover
from deerflow.models.explain import explain, reason_of
from deerflow.models.factory import ModelFactory
from deerflow.models.tracing import quiet_tracing

__all__ = ["Discovery", "ModelFactory", "discover", "explain", "quiet_tracing", "reason_of"]
