"""Execute tasks concurrently within limits; tasks can be cancelled and keep their findings."""

import asyncio
import contextvars
import threading
from collections import OrderedDict, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from deerflow.errors import ConflictError, NotFoundError
from deerflow.subagents.attempt import Attempt
from deerflow.subagents.company import Company
from deerflow.subagents.config import SubagentResult
from deerflow.subagents.gate import FairGate, Place
from deerflow.subagents.task import Resume, SubagentTask

TaskKey = tuple[str, str]
"""Run id and task id: some models reuse their call ids in every conversation."""

MAX_KEPT_RESULTS = 1024


class SubagentExecutor:
    """Executes all tasks of this process."""

    def __init__(self, *, max_running: int) -> None:
        self._gate = FairGate(max_running)
        self._company = Company()
        self._attempts: dict[TaskKey, Attempt] = {}
        self._jobs: dict[TaskKey, asyncio.Task[None]] = {}
        self._cancel_wishes: set[TaskKey] = set()
        self._results: OrderedDict[TaskKey, SubagentResult] = OrderedDict()
        self._started: defaultdict[str, set[str]] = defaultdict(set)
        self._background: dict[TaskKey, asyncio.Task[SubagentResult]] = {}
        self._asking: dict[TaskKey, Attempt] = {}
        self._news: defaultdict[str, list[str]] = defaultdict(list)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alone = threading.Lock()

    async def execute(self, task: SubagentTask) -> SubagentResult:
        """Run a task until it ends or asks; failures are results, and only cancelling the caller raises."""
        self._loop = asyncio.get_running_loop()
        parent = self._place_of(task)
        if parent is None:
            return await self._see_through(self._begin(task))
        async with parent.lent():
            return await self._see_through(self._begin(task))

    def execute_sync(self, task: SubagentTask) -> SubagentResult:
        """Run a task from synchronous code and return its result.

        Works without a running loop, and in a thread other than that of the loop that runs the tasks. On that
        loop's thread it would deadlock, so it raises `ConflictError`.
        """
        loop, here = self._loop, _running_loop()
        if loop is not None and loop.is_running():
            if here is loop:
                raise ConflictError("this thread runs the tasks' loop; use 'await executor.execute(task)'")
            return asyncio.run_coroutine_threadsafe(self.execute(task), loop).result()
        with self._alone:  # one loop at a time: the futures of queued tasks belong to one loop
            if here is None:
                return asyncio.run(self._execute_alone(task))
            with ThreadPoolExecutor(1) as beside:
                return beside.submit(lambda: asyncio.run(self._execute_alone(task))).result()

    def execute_async(self, task: SubagentTask) -> str:
        """Start a task in the background and return its id; `wait` returns its result."""
        self._loop = asyncio.get_running_loop()
        attempt = self._begin(task)
        job = asyncio.create_task(self._see_through(attempt), context=contextvars.Context())
        self._background[task.key] = job
        job.add_done_callback(lambda _: self._tell_later(task.key))
        return task.task_id

    def answer(self, run_id: str, task_id: str, given: object) -> None:
        """Resume a background task with a person's answer; later answers are ignored."""
        attempt = self._asking.get((run_id, task_id))
        if attempt is not None:
            self.execute_async(replace(attempt.task, resume=Resume(given)))

    async def wait(self, run_id: str, task_id: str) -> SubagentResult:
        """Return a background task once it has ended or asks; cancelling the wait does not cancel it."""
        job = self._background.get((run_id, task_id))
        if job is not None:
            await asyncio.wait([job])
        return self._known(run_id, task_id)

    async def wait_for_background(self, run_id: str) -> None:
        """Wait until each background task of a run asks or has ended, so that `take_news` returns it."""
        jobs = [job for key, job in self._background.items() if key[0] == run_id]
        if jobs:
            await asyncio.wait(jobs)

    def background(self, run_id: str) -> list[SubagentResult]:
        """Return the background tasks of a run that have not ended."""
        return [each for each in self.list(run_id) if each.is_background and not each.status.is_terminal]

    def take_news(self, run_id: str, task_id: str | None = None) -> list[SubagentResult]:
        """Return the background tasks that ended and were not reported yet; each is returned once."""
        ended = [each for each in self._news.get(run_id, ()) if task_id in (None, each)]
        left = [each for each in self._news.pop(run_id, ()) if each not in ended]
        if left:
            self._news[run_id] = left
        return [self._known(run_id, each) for each in ended]

    async def enter(self, run_id: str, task_id: str) -> None:
        """Wait until a task has its slot; return at once when it has."""
        attempt = self._attempts.get((run_id, task_id))
        if attempt is not None:
            await attempt.enter()

    async def leave(self, run_id: str, task_id: str) -> None:
        """Release the slot of a task that has received what may be its last model answer."""
        attempt = self._attempts.get((run_id, task_id))
        if attempt is not None:
            await attempt.leave(self._gate)

    def send(self, run_id: str, task_id: str, text: str) -> bool:
        """Add a message to a running task's inbox, read before its next step; False without such a task."""
        attempt = self._attempts.get((run_id, task_id))
        if attempt is None or attempt.result.status.is_terminal:
            return False
        attempt.inbox.append(text)
        return True

    def take_messages(self, run_id: str, task_id: str) -> list[str]:
        """Return and remove the messages in a task's inbox."""
        attempt = self._attempts.get((run_id, task_id))
        if attempt is None or not attempt.inbox:
            return []
        taken = list(attempt.inbox)
        attempt.inbox.clear()
        return taken

    def request_cancel(self, run_id: str, task_id: str) -> bool:
        """Cancel a task, including its running tool; False when there is no such task to cancel."""
        job = self._jobs.get((run_id, task_id))
        if job is None or job.done():
            return self._cancel_asking((run_id, task_id))
        self._cancel_wishes.add((run_id, task_id))
        job.cancel()
        return True

    def get(self, run_id: str, task_id: str) -> SubagentResult | None:
        """Return the current result of a task."""
        return self._results.get((run_id, task_id))

    def list(self, run_id: str | None = None) -> list[SubagentResult]:
        """Return the tasks of one run, or all, oldest first."""
        return [each for each in self._results.values() if run_id is None or each.run_id == run_id]

    def started(self, run_id: str) -> frozenset[str]:
        """Return the ids of all tasks that a run has started in this process."""
        return frozenset(self._started.get(run_id, ()))

    def cleanup(self, run_id: str) -> None:
        """Forget the tasks of a run that have ended or wait for an answer."""
        for result in self.list(run_id):
            if result.status.is_terminal or result.question is not None:
                del self._results[run_id, result.task_id]
                self._asking.pop((run_id, result.task_id), None)
        if not self.list(run_id):
            self._started.pop(run_id, None)
            self._news.pop(run_id, None)

    async def finish(self, run_id: str) -> None:
        """Cancel a run's background tasks and forget its tasks; called when the run ends."""
        left = [job for key, job in self._background.items() if key[0] == run_id]
        for job in left:
            job.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self.cleanup(run_id)

    async def _execute_alone(self, task: SubagentTask) -> SubagentResult:
        """Run a task on an event loop of its own, and close the connections opened on it."""
        try:
            return await self.execute(task)
        finally:
            if task.let_go is not None:
                await task.let_go()

    def _begin(self, task: SubagentTask) -> Attempt:
        if task.key in self._jobs:
            raise ConflictError(f"task {task.task_id} is at work already")
        self._asking.pop(task.key, None)
        self._started[task.context.run_id].add(task.task_id)
        attempt = self._attempts[task.key] = Attempt(task, self._remember)
        self._jobs[task.key] = asyncio.create_task(
            attempt.run(self._gate, self._company), context=contextvars.Context()
        )
        return attempt

    async def _see_through(self, attempt: Attempt) -> SubagentResult:
        key = attempt.task.key
        try:
            await self._jobs[key]
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            is_wish = key in self._cancel_wishes and not (caller and caller.cancelling())
            attempt.cancel("cancelled by user" if is_wish else "the run was stopped")
            if not is_wish:
                raise
        finally:
            self._jobs.pop(key, None)
            self._attempts.pop(key, None)
            self._cancel_wishes.discard(key)
        if attempt.result.question is not None and attempt.task.is_background:
            self._asking[key] = attempt
        return attempt.result

    def _place_of(self, task: SubagentTask) -> Place | None:
        """Return the slot of the parent task, which does not need it while it waits."""
        attempt = self._attempts.get(task.parent_key) if task.parent_key else None
        return attempt.place if attempt is not None else None

    def _tell_later(self, key: TaskKey) -> None:
        has_stopped = self._background.pop(key, None) is not None
        if has_stopped and key in self._results and self._results[key].status.is_terminal:
            self._news[key[0]].append(key[1])

    def _cancel_asking(self, key: TaskKey) -> bool:
        """Cancel a background task that waits for an answer; False when it does not."""
        attempt = self._asking.pop(key, None)
        if attempt is None:
            return False
        attempt.cancel("cancelled by user")
        self._news[key[0]].append(key[1])
        return True

    def _known(self, run_id: str, task_id: str) -> SubagentResult:
        result = self.get(run_id, task_id)
        if result is None:
            raise NotFoundError("task", task_id, known=[each.task_id for each in self.list(run_id)])
        return result

    def _remember(self, result: SubagentResult) -> None:
        """Store the current result of a task; above the limit, drop the oldest task that has ended.

        Background tasks stay until their run ends: their end may not have been reported yet.
        """
        self._results[result.run_id, result.task_id] = result
        if len(self._results) > MAX_KEPT_RESULTS:
            known = self._results.values()
            ended = next((each for each in known if each.status.is_terminal and not each.is_background), None)
            if ended is not None:
                del self._results[ended.run_id, ended.task_id]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
