"""Compute how many tasks are allowed in one reply, at once and per run, for all other modules."""

from deerflow.config import Settings, SubagentsSettings
from deerflow.domain import RunOptions


def subagent_limit(options: RunOptions, settings: Settings) -> int:
    """Return how many tasks one reply may start, within the settings; 0 when sub-agents are off."""
    return reply_limit(options, settings.subagents) if options.subagent_enabled else 0


def reply_limit(options: RunOptions, settings: SubagentsSettings) -> int:
    """Return how many tasks of one reply run in parallel."""
    least, most = settings.concurrency_range
    return max(least, min(options.max_concurrent_subagents, most))


def running_limit(options: RunOptions, settings: SubagentsSettings) -> int | None:
    """Return how many tasks of one run run at once; with `overflow: queue` the reply's limit applies too."""
    limits = [settings.max_running_per_run]
    if settings.overflow == "queue":
        limits.append(reply_limit(options, settings))
    return min((limit for limit in limits if limit is not None), default=None)


def total_limit(options: RunOptions, settings: SubagentsSettings) -> int | None:
    """Return how many tasks one run may start; a client may lower the limit, not raise it."""
    limits = (settings.max_total_per_run, options.max_total_subagents)
    return min((limit for limit in limits if limit is not None), default=None)
