"""Helpers shared by `serve` and `worker`, the long-lived processes that execute runs."""

import gc
import logging

from deerflow.app import DeerFlow
from deerflow.config import LoadedSettings
from deerflow.errors import ConfigError

logger = logging.getLogger(__name__)


def check_database(loaded: LoadedSettings, why: str) -> None:
    """Raise `ConfigError` when the database cannot be shared by several processes; `why` says why it must."""
    backend = loaded.settings.database.backend
    if backend != "postgres":
        raise ConfigError(
            f"{why}, and database.backend '{backend}' is for one process: there `deerflow serve` executes "
            "its runs itself. To share the work, set database.backend to 'postgres' and "
            "database.postgres_url to where it is."
        )


def exit_code_of(deerflow: DeerFlow) -> int:
    """Return 0 when the closed process handed over all of its runs; else log how many were left, return 1."""
    left = deerflow.runs.left_behind
    if not left:
        return 0
    logger.error(
        "%s runs could not be handed over: the database could not be reached in time. Others go on with them "
        "when their leases have run out (run_ownership.lease_seconds)",
        left,
    )
    return 1


def tune_garbage_collector() -> None:
    """Collect the garbage of loading, and never scan the objects that exist by then again."""
    gc.collect()
    gc.freeze()
