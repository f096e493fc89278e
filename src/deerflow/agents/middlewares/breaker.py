"""Leaves a model that keeps failing alone for a while."""

import time
from collections.abc import Callable

Clock = Callable[[], float]


class CircuitBreaker:
    """Counts failures in a row; open, it lets one call through after each rest to see how things are.

    It is shared by all runs of an agent on purpose: what one of them learned spares the others the wait.
    """

    def __init__(
        self, *, failure_threshold: int, recovery_seconds: float, clock: Clock = time.monotonic
    ) -> None:
        self._threshold = failure_threshold
        self._recovery_seconds = recovery_seconds
        self._clock = clock
        self._failures = 0
        self._opened_at = 0.0

    def seconds_left(self) -> float:
        """Return how long callers should stay away; 0 when a call may be made."""
        if self._failures < self._threshold:
            return 0.0
        left = self._opened_at + self._recovery_seconds - self._clock()
        if left > 0:
            return left
        self._opened_at = self._clock()  # this caller tries; the others wait for what it finds
        return 0.0

    def succeeded(self) -> None:
        """Close the circuit."""
        self._failures = 0

    def failed(self) -> None:
        """Count a failure; the last one in a row that is too many opens the circuit."""
        self._failures += 1
        if self._failures >= self._threshold:
            self._opened_at = self._clock()
