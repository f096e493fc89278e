"""Requests to cancel one task of a run that another process executes.

They are stored in the database; the process that executes runs polls for them once a second.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from langgraph.store.base import BaseStore

_NAMESPACE = ("deerflow", "task-cancel-requests")
_MOST = 100


class TaskCancelRequests:
    """Stores cancel requests for other processes, and applies those for this one."""

    def __init__(
        self,
        *,
        store: BaseStore,
        cancel: Callable[[str, str], bool],
        is_busy: Callable[[], bool],
        life: timedelta = timedelta(minutes=10),
    ) -> None:
        """Create the cancel requests of one process.

        Args:
            cancel: Cancels a task of this process by its run and id; False when there is none.
            is_busy: Returns whether this process executes any run.
            life: A request not applied for this long is deleted: its run has ended.
        """
        self._store = store
        self._cancel = cancel
        self._is_busy = is_busy
        self._life = life

    async def request(self, run_id: str, task_id: str) -> None:
        """Store a request to cancel a task, in whichever process it runs."""
        wanted = {"run_id": run_id, "task_id": task_id}
        await self._store.aput(_NAMESPACE, f"{run_id}/{task_id}", wanted, index=False)

    async def apply(self) -> None:
        """Cancel the tasks of this process that have a request."""
        if not self._is_busy():
            return
        for item in await self._store.asearch(_NAMESPACE, limit=_MOST):
            is_old = datetime.now(UTC) - item.created_at > self._life
            if self._cancel(item.value["run_id"], item.value["task_id"]) or is_old:
                await self._store.adelete(_NAMESPACE, item.key)
