"""A run manager with a real worker, whose agent takes two steps and waits at each for the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from support.sandboxes import FolderSandbox
from typing_extensions import override

from deerflow.agents import StateReader
from deerflow.config import Paths, Settings
from deerflow.domain import RunRecord, RunRequest, ThreadFolders
from deerflow.memory import MemoryService
from deerflow.observability.watch import Watch
from deerflow.retrieval import Index
from deerflow.runtime import RunManager, RunSetup, StreamBridge, ThreadStates, Worker
from deerflow.runtime.graph_stream import Graph
from deerflow.runtime.threads import Threads
from deerflow.runtime.usage import SideUsage
from deerflow.runtime.webhooks import Webhooks
from deerflow.sandbox import Sandbox, SandboxProvider
from deerflow.storage import OwnerLock, Storage
from deerflow.web.service import WebService

STEPS = ("first", "second")


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


@dataclass(slots=True)
class Steps:
    """Where runs are and how far they may go."""

    begun: list[tuple[str, str]] = field(default_factory=list)
    """Thread and step, in the order in which they were begun."""
    gates: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def let(self, thread: str, *steps: str) -> None:
        """Let a thread's runs through these steps, or through all."""
        for step in steps or STEPS:
            self._gate(thread, step).set()

    async def until(self, thread: str, step: str, *, times: int = 1) -> None:
        """Wait until a thread's runs have begun a step so many times."""
        async with asyncio.timeout(60):
            while self.begun.count((thread, step)) < times:
                self._news.clear()
                await self._news.wait()

    async def take(self, thread: str, step: str) -> None:
        self.begun.append((thread, step))
        self._news.set()
        await self._gate(thread, step).wait()

    def _gate(self, thread: str, step: str) -> asyncio.Event:
        return self.gates.setdefault((thread, step), asyncio.Event())


class FolderSandboxes(SandboxProvider):
    """Lends sandboxes that are folders."""

    @override
    @asynccontextmanager
    async def acquire(self, folders: ThreadFolders) -> AsyncIterator[Sandbox]:
        yield FolderSandbox(folders.root)

    @override
    async def aclose(self) -> None:
        return


class TwoStepRuns:
    """Prepares every run with the graph of two steps."""

    settings = Settings()

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    async def resolve(self, request: RunRequest) -> RunRequest:
        return request

    async def prepare(self, run: RunRecord) -> RunSetup:
        return RunSetup(self.settings, self._graph, FolderSandboxes(), _finish)


@asynccontextmanager
async def open_run_manager(
    storage: Storage, root: Path, steps: Steps, *, take_over: bool = True, **options: Any
) -> AsyncIterator[RunManager]:
    """Open a run manager as a process of its own would, on a database that others may share."""
    owner = OwnerLock(root / "owners")
    paths, watch, preparer = Paths(root), Watch(), TwoStepRuns(_graph(steps, storage))
    bridge = StreamBridge(events=storage.events, runs=storage.runs, signals=storage.signals)
    states = ThreadStates(StateReader(storage.checkpoints))
    threads = Threads(
        storage=storage,
        paths=paths,
        bridge=bridge,
        states=states,
        side_usage=SideUsage(storage.store),
        memories=MemoryService(storage.store, Index(storage.passages, None), redact=watch.redact),
        titles=lambda: preparer.settings.title,
    )
    manager = RunManager(
        storage=storage,
        bridge=bridge,
        worker=Worker(
            storage=storage,
            bridge=bridge,
            paths=paths,
            preparer=preparer,
            states=states,
            watch=watch,
            web=WebService(),
        ),
        preparer=preparer,
        states=states,
        threads=threads,
        webhooks=Webhooks(storage, states, tuple),
        owner=owner,
        **options,
    )
    manager.start_polling(take_over=take_over)
    try:
        yield manager
    finally:
        manager.skip_grace()
        await manager.aclose()
        owner.close()


def hello(thread: str, **more: Any) -> RunRequest:
    """Return a request for a run that says hello."""
    return RunRequest(thread, input={"messages": [{"type": "human", "content": "hello"}]}, **more)


async def _finish(run_id: str) -> None:
    return


def _graph(steps: Steps, storage: Storage) -> Graph:
    def node(name: str) -> Any:
        async def step(state: State, config: RunnableConfig) -> dict[str, Any]:
            await steps.take(config["configurable"]["thread_id"], name)
            return {"messages": [AIMessage(name)]}

        return step

    graph = StateGraph(State)
    for name in STEPS:
        graph.add_node(name, node(name))
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    return graph.compile(checkpointer=storage.checkpoints)
