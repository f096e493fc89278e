"""Named chat models: discovery, construction, transport and fallbacks."""

from deerflow.models.discovery import Discovery, discover
from deerflow.models.explain import explain, reason_of
from deerflow.models.factory import ModelFactory
from deerflow.models.fallback import can_reason
from deerflow.models.tracing import quiet_tracing

__all__ = ["Discovery", "ModelFactory", "can_reason", "discover", "explain", "quiet_tracing", "reason_of"]
