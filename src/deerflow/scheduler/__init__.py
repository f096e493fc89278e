"""Starts the runs of cron jobs when they are due."""

from deerflow.scheduler.cron import CronJob, Occurrence, check_schedule
from deerflow.scheduler.loop import Scheduler, tick_key
from deerflow.scheduler.store import MAX_CRONS, CronStore

__all__ = ["MAX_CRONS", "CronJob", "CronStore", "Occurrence", "Scheduler", "check_schedule", "tick_key"]
