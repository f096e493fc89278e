"""External agent programs that use the Agent Client Protocol (ACP); needs the extra `acp`."""
