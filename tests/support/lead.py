"""A lead agent on the scripted model server, with everything around it real."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from support.model_server import ScriptedModel
from support.sandboxes import FolderSandbox

from deerflow.config import ModelSettings, Settings
from deerflow.context import RunContext
from deerflow.domain import RunOptions, ThreadFolders, new_id
from deerflow.lead import LeadAgents, LeadDependencies
from deerflow.models import ModelFactory
from deerflow.skills import Skills
from deerflow.subagents import SubagentExecutor


def scripted_models(server: ScriptedModel, **keys: Any) -> ModelFactory:
    """Return two models, `scripted` and `small`, on one scripted server."""
    common = {
        "use": "langchain_openai:ChatOpenAI",
        "base_url": server.base_url,
        "api_key": "none",
        "max_retries": 0,
    }
    models = [
        ModelSettings.model_validate({"name": name, "model": name, **common, **keys})
        for name in ("scripted", "small")
    ]
    return ModelFactory(models, env={})


class Lead:
    """One thread and the lead agent that works on it."""

    def __init__(
        self,
        server: ScriptedModel,
        root: Path,
        *,
        settings: Settings | None = None,
        options: RunOptions | None = None,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        executor: SubagentExecutor | None = None,
        skills: Skills | None = None,
        refusal: str | None = None,
        models: ModelFactory | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.models = models or scripted_models(server)
        self.checkpointer = checkpointer or InMemorySaver()
        self.executor = executor or SubagentExecutor(max_running=self.settings.subagents.max_running)
        self.dependencies = LeadDependencies(
            settings=self.settings,
            models=self.models,
            executor=self.executor,
            checkpointer=self.checkpointer,
            skills=skills or Skills(None),
        )
        self.options = options or RunOptions(subagent_enabled=True)
        self.agents = LeadAgents(self.dependencies)
        self.events: list[Mapping[str, Any]] = []
        self._has_new = asyncio.Event()
        self.folders = ThreadFolders("t1", root)
        self.folders.create()
        self.context = RunContext(
            run_id="r1",
            thread_id="t1",
            user_id="default",
            settings=self.settings,
            folders=self.folders,
            sandbox=FolderSandbox(self.folders.user_data, refusal=refusal),
            options=self.options,
            publish=self._record,
        )

    @property
    def config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": "t1"}}

    @property
    def agent(self) -> Any:
        return self.agents.get(self.options)

    async def ask(self, question: str | None, *, run_id: str = "r1", **message: Any) -> list[AnyMessage]:
        """Run one turn, or go on with the last one; returns all messages of the thread."""
        values = None
        if question is not None:
            values = {"messages": [{"type": "human", "content": question, "id": new_id(), **message}]}
        result = await self.agent.ainvoke(values, self.config, context=replace(self.context, run_id=run_id))
        return list(result["messages"])

    async def values(self) -> dict[str, Any]:
        """Return the thread's state."""
        return dict((await self.agent.aget_state(self.config)).values)

    async def until(self, kind: str, *, count: int = 1) -> None:
        """Wait until so many events of a kind were published."""
        async with asyncio.timeout(60):
            while sum(event["type"] == kind for event in self.events) < count:
                self._has_new.clear()
                await self._has_new.wait()

    def _record(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)
        self._has_new.set()

    def events_of(self, *kinds: str) -> list[tuple[str, str]]:
        """Return kind and task of the published events, of these kinds when some are given."""
        return [(e["type"], e["task_id"]) for e in self.events if not kinds or e["type"] in kinds]


NewLead = Callable[..., Lead]
