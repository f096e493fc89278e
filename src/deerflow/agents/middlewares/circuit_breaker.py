"""Suspends calls to a model that keeps failing."""

import hashlib
import time
from collections.abc import Callable, Hashable

from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr

from deerflow.config import CircuitBreakerSettings

Clock = Callable[[], float]
_ADDRESSES = ("openai_api_base", "base_url", "api_base", "anthropic_api_url", "azure_endpoint")


class CircuitBreaker:
    """Counts consecutive failed calls; when open, it lets one trial call through per recovery period."""

    def __init__(
        self, *, failure_threshold: int, recovery_seconds: float, clock: Clock = time.monotonic
    ) -> None:
        self._threshold = failure_threshold
        self._recovery_seconds = recovery_seconds
        self._clock = clock
        self._opened_at = 0.0
        self.failures = 0
        self.last_failure = ""
        """The error of the last failed call."""
        self.last_failure_in_chinese = ""

    def seconds_left(self) -> float:
        """Return how long callers must wait; 0 if a call may be made."""
        if self.failures < self._threshold:
            return 0.0
        left = self._opened_at + self._recovery_seconds - self._clock()
        if left > 0:
            return left
        self._opened_at = self._clock()  # this caller makes the trial call; others wait for its outcome
        return 0.0

    def succeeded(self) -> None:
        """Close the circuit: the provider responded, even if with a refusal."""
        self.failures = 0

    def failed(self, why: str = "", why_in_chinese: str = "") -> None:
        """Count a failed call; reaching the threshold opens the circuit."""
        self.failures += 1
        self.last_failure, self.last_failure_in_chinese = why, why_in_chinese
        if self.failures >= self._threshold:
            self._opened_at = self._clock()

    def abandoned(self) -> None:
        """Record that a call ended without an outcome, so that the next call may be the trial."""
        self._opened_at = self._clock() - self._recovery_seconds


class CircuitBreakers:
    """One circuit breaker per model and API key.

    All agents share them on purpose: one call's failure spares the others the wait. Other keys and other
    servers are unaffected.
    """

    def __init__(self, settings: CircuitBreakerSettings, *, clock: Clock = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._breakers: dict[Hashable, CircuitBreaker] = {}

    def of(self, model: BaseChatModel) -> CircuitBreaker:
        """Return the circuit breaker of a model; a model with fallbacks has one for all its members."""
        key = tuple(map(_identity, getattr(model, "members", (model,))))
        found = self._breakers.get(key)
        if found is None:
            found = self._breakers[key] = CircuitBreaker(
                failure_threshold=self._settings.failure_threshold,
                recovery_seconds=self._settings.recovery_timeout_sec,
                clock=self._clock,
            )
        return found


def _identity(model: BaseChatModel) -> Hashable:
    """Return a key of provider, model, address and API key; the API key only as a digest."""
    named = getattr(model, "model_name", None) or getattr(model, "model", None)
    address = next((found for name in _ADDRESSES if (found := getattr(model, name, None))), None)
    secrets = [value for value in model.__dict__.values() if isinstance(value, SecretStr)]
    digest = hashlib.sha256("\n".join(secret.get_secret_value() for secret in secrets).encode())
    return type(model).__name__, str(named), str(address), digest.hexdigest()
