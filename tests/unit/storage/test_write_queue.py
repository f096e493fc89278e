"""Units of work: none is lost, whoever takes it and whatever happens meanwhile."""

import asyncio
import threading

import pytest
from typing_extensions import override

from deerflow.errors import StorageError
from deerflow.storage.write_queue import Unit, UnitQueue, deliver


class Reluctant(UnitQueue):
    """Takes units on the calling thread, and gives them back once somebody wishes to close."""

    closing: threading.Thread | None = None

    @override
    def _write(self, units: list[Unit]) -> None:
        deliver(units)

    @override
    def _write_near(self, units: list[Unit]) -> bool:
        self.closing = threading.Thread(target=self.close)
        self.closing.start()
        self._thread.join(0.3)  # it would end now, had it not to wait for these units
        return False


async def test_what_was_taken_and_put_back_while_the_queue_closed_is_still_written() -> None:
    queue = Reluctant("notes")

    async with asyncio.timeout(30):
        await queue.ask(lambda db: None, weight=1)

    assert queue.closing is not None
    await asyncio.to_thread(queue.closing.join)


class Clumsy(UnitQueue):
    """Stumbles over its first units, before or after it has said what became of some."""

    stumbles = 1

    @override
    def _write(self, units: list[Unit]) -> None:
        deliver(units[:1])
        if self.stumbles:
            self.stumbles -= 1
            raise OSError("the disk is gone")
        deliver(units[1:])

    @override
    def _write_near(self, units: list[Unit]) -> bool:
        self._write(units)
        return True


@pytest.mark.parametrize("weight", [None, 1])
async def test_whatever_happens_to_a_writer_it_answers_and_goes_on(weight: int | None) -> None:
    queue = Clumsy("notes")
    with queue._writing:  # so that the first two are written together
        waiting = [queue.ask(lambda db: None, weight=weight) for _ in range(2)]
    async with asyncio.timeout(60):
        waiting.append(queue.ask(lambda db: None, weight=weight))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert await queue.ask(lambda db: None, weight=weight) is None

    assert outcomes[0] is None
    assert isinstance(outcomes[1], StorageError)
    await asyncio.to_thread(queue.close)
