"""What alembic runs to learn which database it is about: the one that `run.upgrade` hands over."""

from alembic import context

from deerflow.storage.migrations import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transaction_per_migration=False,
)
context.run_migrations()
