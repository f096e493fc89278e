"""The lead agent: the one that users talk to."""

from deerflow.lead.agent import LeadAgents, make_lead_agent
from deerflow.lead.dependencies import LeadDependencies

__all__ = ["LeadAgents", "LeadDependencies", "make_lead_agent"]
