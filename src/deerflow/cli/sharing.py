"""What `serve` and `worker` have in common: both execute runs for hours."""

import gc
import logging

from deerflow.app import DeerFlow
from deerflow.config import LoadedSettings
from deerflow.errors import ConfigError

logger = logging.getLogger(__name__)

_COLLECTOR_THRESHOLDS = (50_000, 20, 50)


def check_database(loaded: LoadedSettings, why: str) -> None:
    """Raise `ConfigError` when the database is not one that processes can share, though they have to."""
    backend = loaded.settings.database.backend
    if backend != "postgres":
        raise ConfigError(
            f"{why}, and database.backend '{backend}' is for one process: there `deerflow serve` executes "
            "its runs itself. To share the work, set database.backend to 'postgres' and "
            "database.postgres_url to where it is."
        )


def exit_code_of(deerflow: DeerFlow) -> int:
    """Return 0 when a process that was closed handed all of its runs over; else say what it left."""
    left = deerflow.runs.left_behind
    if not left:
        return 0
    logger.error(
        "%s runs could not be handed over: the database could not be reached in time. Others go on with them "
        "when their leases have run out (run_ownership.lease_seconds)",
        left,
    )
    return 1


def calm_collector() -> None:
    """Look for cyclic garbage less often, and never among what was there at the start.

    A step of an agent makes thousands of short-lived objects; looking through all the others each time took a
    fifth of the processor time of a wide fan-out.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
