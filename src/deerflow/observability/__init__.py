"""What operators see: logs, and who looks on while runs go by."""

from deerflow.observability.logs import configure_logging, learn_secrets, secrets_of

__all__ = ["configure_logging", "learn_secrets", "secrets_of"]
