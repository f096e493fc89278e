"""The lead agent: the one that users talk to."""

from deerflow.lead.agent import LeadAgents, make_lead_agent
from deerflow.lead.rooms import LeadRooms

__all__ = ["LeadAgents", "LeadRooms", "make_lead_agent"]
