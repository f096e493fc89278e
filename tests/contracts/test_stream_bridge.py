"""The stream bridge contract, on databases that two processes have open."""

from contracts.databases import OnPostgres, OnSqlite
from contracts.stream_bridge_contract import StreamBridgeContract


class TestSqliteStreamBridge(OnSqlite, StreamBridgeContract):
    pass


class TestPostgresStreamBridge(OnPostgres, StreamBridgeContract):
    pass
