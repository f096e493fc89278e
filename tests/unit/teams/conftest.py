from support.leads import lead, new_lead

__all__ = ["lead", "new_lead"]
