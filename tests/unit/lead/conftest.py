from support.leads import lead, new_lead, saver

__all__ = ["lead", "new_lead", "saver"]
