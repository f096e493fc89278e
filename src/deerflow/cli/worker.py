"""`deerflow worker`: executes runs that gateways admitted; several workers share one PostgreSQL."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deerflow.app import DeerFlow
from deerflow.cli.sharing import check_database, exit_code_of, tune_garbage_collector
from deerflow.config import SettingsSource
from deerflow.observability import configure_logging, secrets_of
from deerflow.observability.serving import serve_metrics

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_REPORT_SECONDS = 60
"""Interval of the log line with the number of runs in progress."""


def execute(*, concurrency: int, config: Path | None, metrics_port: int | None = None) -> int:
    """Execute runs until stopped."""
    source = SettingsSource(config)
    loaded = source.current()
    configure_logging(loaded.settings.log_level, loaded.settings.logging.format, secrets=secrets_of(loaded))
    check_database(loaded, "a worker shares the runs of other processes")
    tune_garbage_collector()
    return asyncio.run(_work(source, concurrency, metrics_port))


async def _work(source: SettingsSource, concurrency: int, metrics_port: int | None) -> int:
    signals = _Signals()
    with signals.heard():
        async with (
            DeerFlow.open(source, takes_over=True, capacity=concurrency) as deerflow,
            serve_metrics(metrics_port, deerflow.watch.meters),
        ):
            signals.hurry = deerflow.skip_grace
            logger.info("worker %s takes up to %s runs at once", _name(), concurrency)
            print(f"DeerFlow worker {_name()} for {concurrency} runs at once (stop with Ctrl-C)", flush=True)
            await _report_until(signals.stop, deerflow)
            logger.info("worker %s stops, with %s runs in progress", _name(), deerflow.runs.in_progress)
    code = exit_code_of(deerflow)
    logger.info("worker %s has stopped", _name())
    return code


async def _report_until(stop: asyncio.Event, deerflow: DeerFlow) -> None:
    """Log the number of runs in progress periodically until `stop` is set."""
    while True:
        try:
            async with asyncio.timeout(_REPORT_SECONDS):
                await stop.wait()
            return
        except TimeoutError:
            logger.info("worker %s is at %s runs", _name(), deerflow.runs.in_progress)


class _Signals:
    """Handles signals: the first stops the worker at its runs' next steps, the second at once."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry: Callable[[], None] | None = None

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Install the signal handlers for the length of a block."""
        loop = asyncio.get_running_loop()
        for which in _SIGNALS:
            loop.add_signal_handler(which, self._hear)
        try:
            yield
        finally:
            for which in _SIGNALS:
                loop.remove_signal_handler(which)

    def _hear(self) -> None:
        if self.stop.is_set() and self.hurry is not None:
            self.hurry()
        self.stop.set()


def _name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"
