"""The lead agent: the agent that answers the user."""

from deerflow.lead.agent import LeadAgents, make_lead_agent
from deerflow.lead.dependencies import LeadDependencies

__all__ = ["LeadAgents", "LeadDependencies", "make_lead_agent"]
