"""Wishes to stop one task of a run that another process drives.

They wait in the database for that process, which looks for them once a second while it drives runs.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from langgraph.store.base import BaseStore

_NAMESPACE = ("deerflow", "task-wishes")
_MOST = 100


class TaskCancelRequests:
    """Leaves wishes for other processes, and fulfils those that were left for this one."""

    def __init__(
        self,
        *,
        store: BaseStore,
        cancel: Callable[[str, str], bool],
        is_busy: Callable[[], bool],
        life: timedelta = timedelta(minutes=10),
    ) -> None:
        """Make the box of one process.

        Args:
            cancel: Stops a task of this process by its run and id; False when there is none.
            is_busy: Tells whether this process drives any run.
            life: A wish that nobody took up for so long was for a run that has ended.
        """
        self._store = store
        self._cancel = cancel
        self._is_busy = is_busy
        self._life = life

    async def leave(self, run_id: str, task_id: str) -> None:
        """Leave the wish that a task be stopped, wherever it is."""
        wish = {"run_id": run_id, "task_id": task_id}
        await self._store.aput(_NAMESPACE, f"{run_id}/{task_id}", wish, index=False)

    async def obey(self) -> None:
        """Stop the tasks of this process that somebody wants stopped."""
        if not self._is_busy():
            return
        for wish in await self._store.asearch(_NAMESPACE, limit=_MOST):
            is_old = datetime.now(UTC) - wish.created_at > self._life
            if self._cancel(wish.value["run_id"], wish.value["task_id"]) or is_old:
                await self._store.adelete(_NAMESPACE, wish.key)
