"""Runs tasks: at once, within limits, cancellable, and with everything they found kept."""

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
"""Run and task: some models count their calls anew in every conversation."""

MAX_KEPT_RESULTS = 1024


class SubagentExecutor:
    """All tasks of this process."""

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
        """Run a task to its end, whatever the end is; only cancelling the caller raises."""
        self._loop = asyncio.get_running_loop()
        parent = self._place_of(task)
        if parent is None:
            return await self._see_through(self._begin(task))
        async with parent.lent():
            return await self._see_through(self._begin(task))

    def execute_sync(self, task: SubagentTask) -> SubagentResult:
        """Run a task to its end and wait for it, from code that cannot await.

        Works without a running loop, and in a thread beside the one whose loop runs the other tasks. On that
        loop itself it would wait for ever, so there it is refused.
        """
        loop, here = self._loop, _running_loop()
        if loop is not None and loop.is_running():
            if here is loop:
                raise ConflictError("this thread runs the tasks' loop; use 'await executor.execute(task)'")
            return asyncio.run_coroutine_threadsafe(self.execute(task), loop).result()
        with self._alone:  # one loop at a time: those who wait for a place belong to one
            if here is None:
                return asyncio.run(self._execute_alone(task))
            with ThreadPoolExecutor(1) as beside:
                return beside.submit(lambda: asyncio.run(self._execute_alone(task))).result()

    def execute_async(self, task: SubagentTask) -> str:
        """Start a task in the background and return its id at once; `wait` returns its result."""
        self._loop = asyncio.get_running_loop()
        attempt = self._begin(task)
        job = asyncio.create_task(self._see_through(attempt), context=contextvars.Context())
        self._background[task.key] = job
        job.add_done_callback(lambda _: self._tell_later(task.key))
        return task.task_id

    def answer(self, run_id: str, task_id: str, given: object) -> None:
        """Let a background task go on with what a person answered; only the first answer counts."""
        attempt = self._asking.get((run_id, task_id))
        if attempt is not None:
            self.execute_async(replace(attempt.task, resume=Resume(given)))

    async def wait(self, run_id: str, task_id: str) -> SubagentResult:
        """Return a background task once it has ended or asks; who stops waiting does not stop it."""
        job = self._background.get((run_id, task_id))
        if job is not None:
            await asyncio.wait([job])
        return self._known(run_id, task_id)

    async def wait_for_background(self, run_id: str) -> None:
        """Return when each background task of a run has ended, so that `take_news` tells of it, or asks."""
        jobs = [job for key, job in self._background.items() if key[0] == run_id]
        if jobs:
            await asyncio.wait(jobs)

    def background(self, run_id: str) -> list[SubagentResult]:
        """Return the background tasks of a run that have not ended."""
        return [each for each in self.list(run_id) if each.is_background and not each.status.is_terminal]

    def take_news(self, run_id: str, task_id: str | None = None) -> list[SubagentResult]:
        """Return the background tasks that ended and that nobody was told about yet; each comes once."""
        ended = [each for each in self._news.get(run_id, ()) if task_id in (None, each)]
        left = [each for each in self._news.pop(run_id, ()) if each not in ended]
        if left:
            self._news[run_id] = left
        return [self._known(run_id, each) for each in ended]

    async def enter(self, run_id: str, task_id: str) -> None:
        """Let a task go on once it has a place; one that has it is not held up."""
        attempt = self._attempts.get((run_id, task_id))
        if attempt is not None:
            await attempt.enter()

    async def leave(self, run_id: str, task_id: str) -> None:
        """Let others have the place of a task that has got what may be its last answer."""
        attempt = self._attempts.get((run_id, task_id))
        if attempt is not None:
            await attempt.leave(self._gate)

    def send(self, run_id: str, task_id: str, text: str) -> bool:
        """Tell a running task something before its next step; tells whether there was one to tell."""
        attempt = self._attempts.get((run_id, task_id))
        if attempt is None or attempt.result.status.is_terminal:
            return False
        attempt.inbox.append(text)
        return True

    def take_messages(self, run_id: str, task_id: str) -> list[str]:
        """Return what a task is to be told; each message comes once."""
        attempt = self._attempts.get((run_id, task_id))
        if attempt is None or not attempt.inbox:
            return []
        taken = list(attempt.inbox)
        attempt.inbox.clear()
        return taken

    def request_cancel(self, run_id: str, task_id: str) -> bool:
        """Stop a task at once, with the tool it is in; tells whether there was one to stop."""
        job = self._jobs.get((run_id, task_id))
        if job is None or job.done():
            return self._cancel_asking((run_id, task_id))
        self._cancel_wishes.add((run_id, task_id))
        job.cancel()
        return True

    def get(self, run_id: str, task_id: str) -> SubagentResult | None:
        """Return what is known of a task."""
        return self._results.get((run_id, task_id))

    def list(self, run_id: str | None = None) -> list[SubagentResult]:
        """Return the tasks of one run, or all, oldest first."""
        return [each for each in self._results.values() if run_id is None or each.run_id == run_id]

    def started(self, run_id: str) -> frozenset[str]:
        """Return the ids of all tasks that a run has started here."""
        return frozenset(self._started.get(run_id, ()))

    def cleanup(self, run_id: str) -> None:
        """Forget the tasks of a run that have ended."""
        for result in self.list(run_id):
            if result.status.is_terminal or result.question is not None:
                del self._results[run_id, result.task_id]
                self._asking.pop((run_id, result.task_id), None)
        if not self.list(run_id):
            self._started.pop(run_id, None)
            self._news.pop(run_id, None)

    async def finish(self, run_id: str) -> None:
        """Stop what a run left in the background and forget its tasks; called when the run ends."""
        left = [job for key, job in self._background.items() if key[0] == run_id]
        for job in left:
            job.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self.cleanup(run_id)

    async def _execute_alone(self, task: SubagentTask) -> SubagentResult:
        """Run a task on a loop that ends with it."""
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
        """Return the place of the task that delegates, which it does not need while it waits."""
        attempt = self._attempts.get(task.parent_key) if task.parent_key else None
        return attempt.place if attempt is not None else None

    def _tell_later(self, key: TaskKey) -> None:
        has_stopped = self._background.pop(key, None) is not None
        if has_stopped and key in self._results and self._results[key].status.is_terminal:
            self._news[key[0]].append(key[1])

    def _cancel_asking(self, key: TaskKey) -> bool:
        """End a background task that waits for a person; tells whether it did."""
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
        """Keep the latest word on a task; the oldest ended ones go first when there are too many.

        Those in the background stay until their run ends: somebody may not have been told of them yet.
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
