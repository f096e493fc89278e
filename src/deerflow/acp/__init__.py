"""Agents that live in other programs and speak the Agent Client Protocol (ACP); needs the extra `acp`."""
