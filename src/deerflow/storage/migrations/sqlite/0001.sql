-- The steps in `storage/sqlite/migrations.py` lead to this revision.
SELECT 1
