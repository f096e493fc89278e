"""Requests to cancel a task reach the process that executes its run."""

from datetime import timedelta

from langgraph.store.memory import InMemoryStore

from deerflow.runtime.run_control import TaskCancelRequests


class Process:
    """A process with some tasks."""

    def __init__(self, store: InMemoryStore, *tasks: tuple[str, str]) -> None:
        self.tasks = set(tasks)
        self.requests = TaskCancelRequests(store=store, cancel=self.cancel, is_busy=lambda: bool(tasks))

    def cancel(self, run_id: str, task_id: str) -> bool:
        found = (run_id, task_id) in self.tasks
        self.tasks.discard((run_id, task_id))
        return found


async def test_only_the_process_with_the_task_applies_a_request() -> None:
    store = InMemoryStore()
    gateway, first, second = Process(store), Process(store, ("r1", "a")), Process(store, ("r2", "b"))
    await gateway.requests.request("r2", "b")

    for process in (gateway, first, second, second):
        await process.requests.apply()

    assert first.tasks == {("r1", "a")}
    assert second.tasks == set()
    assert await store.asearch(("deerflow",)) == []


async def test_a_request_for_an_ended_run_is_deleted() -> None:
    store = InMemoryStore()
    requests = TaskCancelRequests(
        store=store, cancel=lambda run, task: False, is_busy=lambda: True, life=timedelta(seconds=-1)
    )
    await requests.request("gone", "b")

    await requests.apply()

    assert await store.asearch(("deerflow",)) == []
