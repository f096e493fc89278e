"""Starts the runs of cron jobs when they are due."""

from deerflow.scheduler.cron import Cron, check_schedule
from deerflow.scheduler.loop import Scheduler, tick_key
from deerflow.scheduler.occurrences import Occurrence
from deerflow.scheduler.store import MOST_CRONS, CronStore

__all__ = ["MOST_CRONS", "Cron", "CronStore", "Occurrence", "Scheduler", "check_schedule", "tick_key"]
