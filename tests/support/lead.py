"""A lead agent on the scripted model server, with everything around it real."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from support.model_server import ScriptedModel
from support.sandboxes import FolderSandbox

from deerflow.config import ModelSettings, Settings
from deerflow.context import RunContext
from deerflow.domain import RunOptions, ThreadFolders, new_id
from deerflow.lead import LeadAgents, LeadRooms
from deerflow.skills import Skills
from deerflow.subagents import SubagentExecutor


@dataclass
class ScriptedModels:
    """Chat models by name, all on one scripted server; remembers which were made."""

    server: ScriptedModel
    supports_vision: bool = False
    made: list[tuple[str, bool, str | None]] = field(default_factory=list)

    def get(self, name: str | None = None) -> ModelSettings:
        chosen = name or "scripted"
        return ModelSettings(
            name=chosen, use="scripted:Model", model=chosen, supports_vision=self.supports_vision
        )

    def create(
        self, name: str | None = None, *, thinking_enabled: bool = False, reasoning_effort: str | None = None
    ) -> BaseChatModel:
        self.made.append((name or "scripted", thinking_enabled, reasoning_effort))
        return ChatOpenAI(
            model=name or "scripted",
            base_url=self.server.base_url,
            api_key="none",
            max_retries=0,
            stream_usage=True,
        )


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
    ) -> None:
        self.settings = settings or Settings()
        self.models = ScriptedModels(server)
        self.checkpointer = checkpointer or InMemorySaver()
        self.executor = executor or SubagentExecutor(max_running=self.settings.subagents.max_running)
        self.rooms = LeadRooms(
            settings=self.settings,
            models=self.models,
            executor=self.executor,
            checkpointer=self.checkpointer,
            skills=skills or Skills(None),
        )
        self.options = options or RunOptions(subagent_enabled=True)
        self.agents = LeadAgents(self.rooms)
        self.events: list[Mapping[str, Any]] = []
        self._heard = asyncio.Event()
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
            publish=self._hear,
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
        async with asyncio.timeout(20):
            while sum(event["type"] == kind for event in self.events) < count:
                self._heard.clear()
                await self._heard.wait()

    def _hear(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)
        self._heard.set()

    def told(self, *kinds: str) -> list[tuple[str, str]]:
        """Return kind and task of the published events, of these kinds when some are given."""
        return [(e["type"], e["task_id"]) for e in self.events if not kinds or e["type"] in kinds]
