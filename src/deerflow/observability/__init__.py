"""Observability: logs, metrics, spans and traces."""

from deerflow.observability.logs import configure_logging, learn_secrets, secrets_of

__all__ = ["configure_logging", "learn_secrets", "secrets_of"]
