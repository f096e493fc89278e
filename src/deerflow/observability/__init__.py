"""What operators see: logs."""

from deerflow.observability.logs import configure_logging, log_settings, secrets_of

__all__ = ["configure_logging", "log_settings", "secrets_of"]
