"""Assistants that were not created over HTTP: the built-in one, and one for each of the user's agents."""

import asyncio
from datetime import UTC, datetime

from deerflow.app import DeerFlow
from deerflow.domain import DEFAULT_USER, LEAD_AGENT, Assistant
from deerflow.lead.custom_agents import CustomAgent, agent_name

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""These assistants have no creation time, but clients require one."""
LEAD = Assistant(
    id=LEAD_AGENT,
    user_id=DEFAULT_USER,
    created_at=_EPOCH,
    updated_at=_EPOCH,
    name=LEAD_AGENT,
    description="Plans, delegates, works with files and a shell, and answers.",
    metadata={"created_by": "system"},
)


async def ready_assistants(deerflow: DeerFlow, user: str) -> list[Assistant]:
    """Return all of them, the built-in one first."""
    if not deerflow.settings.agents_api.enabled:
        return [LEAD]  # custom agents are not exposed over HTTP
    agents = await asyncio.to_thread(deerflow.custom_agents.of_user, user)
    return [LEAD, *(_of_agent(agent, user) for agent in agents)]


async def ready_assistant(deerflow: DeerFlow, assistant_id: str, user: str) -> Assistant | None:
    """Return the assistant of this name, if there is one."""
    if assistant_id == LEAD_AGENT:
        return LEAD
    if deerflow.settings.agents_api.enabled and await deerflow.is_custom_agent(assistant_id, user):
        agent = await asyncio.to_thread(deerflow.custom_agents.get, user, agent_name(assistant_id))
        return _of_agent(agent, user)
    return None


def _of_agent(agent: CustomAgent, user: str) -> Assistant:
    return Assistant(
        id=agent.name,
        user_id=user,
        created_at=_EPOCH,
        updated_at=_EPOCH,
        name=agent.name,
        description=agent.config.description or None,
        metadata={"created_by": "user"},
    )
