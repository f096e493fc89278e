"""SQLite storage: threads, runs, events, checkpoints and store items in one file."""
