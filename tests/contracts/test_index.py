"""The contract of the index on each database."""

import psycopg
import pytest
from contracts.databases import OnPostgres, OnSqlite
from contracts.index_contract import FACTS, IndexContract, texts

from deerflow.config import DatabaseSettings
from deerflow.retrieval import Index, default_embeddings
from deerflow.storage import Storage


class TestSqliteIndex(OnSqlite, IndexContract):
    pass


class TestPostgresIndex(OnPostgres, IndexContract):
    async def test_the_server_has_pgvector(self, storage: Storage, schema: DatabaseSettings) -> None:
        with psycopg.connect(schema.postgres_url) as connection:
            row = connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone()

        assert row == (1,)

    async def test_without_pgvector_vectors_are_compared_here(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index = Index(storage.passages, default_embeddings())
        await index.sync("c", texts(FACTS))
        usual = await index.search("c", "When was the child born?")

        monkeypatch.setattr("deerflow.storage.postgres.text_index._schema_of_extension", lambda db: None)
        without = await index.search("c", "When was the child born?")

        assert [hit.source for hit in without] == [hit.source for hit in usual]
        assert [hit.score for hit in without] == pytest.approx([hit.score for hit in usual], abs=1e-5)
