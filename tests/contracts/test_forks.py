"""Forks on SQLite and on PostgreSQL."""

from contracts.databases import OnPostgres, OnSqlite
from contracts.fork_contract import ForkContract


class TestSqliteForks(OnSqlite, ForkContract):
    pass


class TestPostgresForks(OnPostgres, ForkContract):
    pass
