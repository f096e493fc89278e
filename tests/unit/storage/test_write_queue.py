"""Write jobs: none is lost, whichever thread takes it and whatever happens meanwhile."""

import asyncio
import threading

import pytest
from typing_extensions import override

from deerflow.errors import StorageError
from deerflow.storage.write_queue import WriteJob, WriteQueue, deliver


class PuttingBack(WriteQueue):
    """Takes jobs on the calling thread, and puts them back while the queue is being closed."""

    closing: threading.Thread | None = None

    @override
    def _write(self, jobs: list[WriteJob]) -> None:
        deliver(jobs)

    @override
    def _write_inline(self, jobs: list[WriteJob]) -> bool:
        self.closing = threading.Thread(target=self.close)
        self.closing.start()
        self._thread.join(0.3)  # it would end now, had it not to wait for these jobs
        return False


async def test_jobs_that_were_put_back_while_the_queue_closed_are_still_written() -> None:
    queue = PuttingBack("notes")

    async with asyncio.timeout(30):
        await queue.submit(lambda db: None, weight=1)

    assert queue.closing is not None
    await asyncio.to_thread(queue.closing.join)


class FailingOnce(WriteQueue):
    """Fails in its first write, after it has delivered one result."""

    failures = 1

    @override
    def _write(self, jobs: list[WriteJob]) -> None:
        deliver(jobs[:1])
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is gone")
        deliver(jobs[1:])

    @override
    def _write_inline(self, jobs: list[WriteJob]) -> bool:
        self._write(jobs)
        return True


@pytest.mark.parametrize("weight", [None, 1])
async def test_a_failing_write_is_reported_and_the_queue_goes_on(weight: int | None) -> None:
    queue = FailingOnce("notes")
    with queue._writing:  # so that the first two are written together
        waiting = [queue.submit(lambda db: None, weight=weight) for _ in range(2)]
    async with asyncio.timeout(60):
        waiting.append(queue.submit(lambda db: None, weight=weight))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert await queue.submit(lambda db: None, weight=weight) is None

    assert outcomes[0] is None
    assert isinstance(outcomes[1], StorageError)
    await asyncio.to_thread(queue.close)
