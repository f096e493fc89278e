"""Services that follow runs: one that fails follows nothing, and the run goes on."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from deerflow.domain import RunRecord, RunRequest, RunStatus
from deerflow.observability.tracers import CallbackTracers


class Follower:
    """A service that follows runs, or fails at it."""

    handler_type = BaseCallbackHandler

    def __init__(self, *, is_broken: bool = False) -> None:
        self.handler = BaseCallbackHandler()
        self._is_broken = is_broken

    @contextmanager
    def run(self, run: RunRecord, trace_id: str) -> Iterator[BaseCallbackHandler]:
        if self._is_broken:
            raise RuntimeError("no such project")
        yield self.handler

    def close(self) -> None:
        if self._is_broken:
            raise RuntimeError("not sent")


def test_a_service_that_fails_keeps_neither_the_run_nor_the_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = datetime.now(UTC)
    run = RunRecord("r1", RunRequest(thread_id="t1", user_id="u1"), RunStatus.RUNNING, now, now)
    good = Follower()
    tracers = CallbackTracers([Follower(is_broken=True), good])

    with caplog.at_level(logging.WARNING), tracers.run(run, "1" * 32) as handlers:
        followed = list(handlers)
    tracers.close()

    assert followed == [good.handler]
    assert "Follower does not follow run r1: no such project" in caplog.text
