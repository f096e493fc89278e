"""A thread's files: uploads and their conversion, artifacts, snapshots, changes, history and copies."""
