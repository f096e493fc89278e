"""The contracts of the run manager and of what it deletes, on databases that two processes have open."""

from contracts.databases import OnPostgres, OnSqlite
from contracts.retention_contract import RetentionContract
from contracts.run_manager_contract import RunManagerContract


class TestSqliteRunManager(OnSqlite, RunManagerContract):
    pass


class TestSqliteRetention(OnSqlite, RetentionContract):
    pass


class TestPostgresRunManager(OnPostgres, RunManagerContract):
    pass


class TestPostgresRetention(OnPostgres, RetentionContract):
    pass
