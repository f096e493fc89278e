"""Units of work: none is lost, whoever takes it and whatever happens meanwhile."""

import asyncio
import threading

from typing_extensions import override

from deerflow.storage.units import Unit, UnitQueue, deliver


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
