"""Tracing costs no thread while it is off."""

import threading
from collections.abc import Iterator
from contextvars import ContextVar

import langsmith
import pytest

from deerflow.models import quiet_tracing

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    langsmith.set_runtime_overrides()


@langsmith.traceable
async def traced() -> str:
    return WHO.get()


async def test_a_traced_function_stays_in_its_thread_and_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANGSMITH_TRACING", raising=False)
    threads: list[str] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: threads.append(thread.name))
    quiet_tracing()
    WHO.set("deer")

    assert await traced() == "deer"
    assert threads == []


async def test_with_tracing_on_the_work_stays_off_the_loop() -> None:
    called = []

    async def to_thread(context: object, function: object, *a: object, **k: object) -> str:
        called.append(function)
        return "done"

    quiet_tracing()
    from langsmith._runtime_overrides import get_runtime_overrides

    override = get_runtime_overrides().aio_to_thread
    assert override is not None
    with langsmith.tracing_context(enabled=True):
        result = await override(to_thread, None, print)  # type: ignore[arg-type]

    assert (result, called) == ("done", [print])
