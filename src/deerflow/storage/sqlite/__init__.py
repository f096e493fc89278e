"""Threads, runs, events, checkpoints and store in one SQLite file."""
