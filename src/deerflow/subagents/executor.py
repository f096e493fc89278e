"""Runs tasks: at once, within limits, cancellable, and with everything they found kept."""

import asyncio
import contextvars
from collections import OrderedDict

from deerflow.subagents.attempt import Attempt, SubagentTask
from deerflow.subagents.config import SubagentResult, SubagentStatus
from deerflow.subagents.gate import FairGate

TaskKey = tuple[str, str]
"""Run and task: some models count their calls anew in every conversation."""

MAX_KEPT_RESULTS = 256


class SubagentExecutor:
    """All tasks of this process."""

    def __init__(self, *, max_running: int) -> None:
        self._gate = FairGate(max_running)
        self._jobs: dict[TaskKey, asyncio.Task[None]] = {}
        self._cancel_wishes: set[TaskKey] = set()
        self._results: OrderedDict[TaskKey, SubagentResult] = OrderedDict()

    async def execute(self, task: SubagentTask) -> SubagentResult:
        """Run a task to its end, whatever the end is; only cancelling the caller raises."""
        key = (task.context.run_id, task.task_id)
        attempt = Attempt(task, self._remember)
        job = asyncio.create_task(attempt.run(self._gate), context=contextvars.Context())
        self._jobs[key] = job
        try:
            await job
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            is_wish = key in self._cancel_wishes and not (caller and caller.cancelling())
            attempt.settle(
                SubagentStatus.CANCELLED, error="cancelled by user" if is_wish else "the run was stopped"
            )
            if not is_wish:
                raise
        finally:
            self._jobs.pop(key, None)
            self._cancel_wishes.discard(key)
        return attempt.result

    def request_cancel(self, run_id: str, task_id: str) -> bool:
        """Stop a task at once, with the tool it is in; tells whether there was one to stop."""
        job = self._jobs.get((run_id, task_id))
        if job is None or job.done():
            return False
        self._cancel_wishes.add((run_id, task_id))
        job.cancel()
        return True

    def get(self, run_id: str, task_id: str) -> SubagentResult | None:
        """Return what is known of a task."""
        return self._results.get((run_id, task_id))

    def list(self, run_id: str | None = None) -> list[SubagentResult]:
        """Return the tasks of one run, or all, oldest first."""
        return [each for each in self._results.values() if run_id is None or each.run_id == run_id]

    def cleanup(self, run_id: str) -> None:
        """Forget the tasks of a run that have ended."""
        for result in self.list(run_id):
            if result.status.is_terminal:
                del self._results[run_id, result.task_id]

    def _remember(self, result: SubagentResult) -> None:
        """Keep the latest word on a task; the oldest ended ones go first when there are too many."""
        self._results[result.run_id, result.task_id] = result
        if len(self._results) > MAX_KEPT_RESULTS:
            ended = next((each for each in self._results.values() if each.status.is_terminal), None)
            if ended is not None:
                del self._results[ended.run_id, ended.task_id]
