"""The lead agent: the one that users talk to."""

from deerflow.lead.agent import LeadAgents, LeadRooms, make_lead_agent

__all__ = ["LeadAgents", "LeadRooms", "make_lead_agent"]
