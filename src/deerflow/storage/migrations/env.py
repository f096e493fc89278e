"""Alembic environment: uses the connection that `upgrade` passes."""

from alembic import context

from deerflow.storage.migrations import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transaction_per_migration=False,
)
context.run_migrations()
