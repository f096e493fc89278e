"""What an operator reads when PostgreSQL cannot be used as the settings say."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support.postgres import LOCKED, PostgresServer

from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunRequest
from deerflow.errors import ConfigError
from deerflow.storage import open_storage
from deerflow.storage.postgres.connection import target_of

PASSWORD = "hunter2-is-secret"


async def refused(settings: DatabaseSettings, home: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        async with open_storage(settings, Paths(home)):
            pass
    message = str(caught.value)
    chain: BaseException | None = caught.value
    while chain is not None:
        assert PASSWORD not in str(chain)
        chain = chain.__cause__
    return message


@pytest.fixture
def locked(postgres: PostgresServer) -> Iterator[str]:
    """Return the URL of a user with a password and no rights."""
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {LOCKED} LOGIN PASSWORD '{PASSWORD}'")
    yield postgres.url.replace("postgres@", f"{LOCKED}:{PASSWORD}@")
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(f"DROP OWNED BY {LOCKED} CASCADE; DROP ROLE {LOCKED}")


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("", "needs database.postgres_url"),
        ("   ", "needs database.postgres_url"),
        (f"mysql://me:{PASSWORD}@host/db", "is no PostgreSQL URL"),
        (f"postgresql://me:{PASSWORD}@host/db?ssl=require", "no option 'ssl'"),
        (f"{PASSWORD}", "is no PostgreSQL URL"),
        (f"postgresql://me:{PASSWORD}@localhost:1/db", "start the server"),
        (f"postgresql://me:{PASSWORD}@/db?host=/nowhere", "start the server"),
    ],
)
async def test_an_unusable_url_names_the_setting(tmp_path: Path, url: str, hint: str) -> None:
    assert hint in await refused(DatabaseSettings(backend="postgres", postgres_url=url), tmp_path)


@pytest.mark.parametrize("schema", ["a b", "a;drop table runs", "-c x=y", "x" * 64, 'a"b'])
async def test_an_invalid_schema_name_is_refused(tmp_path: Path, schema: str) -> None:
    settings = DatabaseSettings(backend="postgres", postgres_url="postgresql://h/d", postgres_schema=schema)

    assert "database.postgres_schema" in await refused(settings, tmp_path)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg"])
def test_urls_of_other_drivers_are_accepted(scheme: str) -> None:
    target = target_of(
        DatabaseSettings(backend="postgres", postgres_url=f"{scheme}://me:{PASSWORD}@db.example:5433/deer")
    )

    assert target.name == "deer at db.example:5433"
    assert "host=db.example" in target.conninfo
    assert PASSWORD not in repr(target)


async def test_a_wrong_password_and_missing_rights_say_so(
    postgres: PostgresServer, locked: str, tmp_path: Path
) -> None:
    wrong = locked.replace(PASSWORD, "wrong")
    schema = {"backend": "postgres", "postgres_schema": "not_mine"}

    assert "check user and password" in await refused(
        DatabaseSettings(**schema, postgres_url=wrong), tmp_path
    )
    assert "grant it CREATE" in await refused(DatabaseSettings(**schema, postgres_url=locked), tmp_path)
    missing = locked.replace("/postgres?", "/nothing?")
    assert "create it" in await refused(DatabaseSettings(**schema, postgres_url=missing), tmp_path)


async def test_a_user_with_a_schema_of_its_own_is_enough(
    postgres: PostgresServer, locked: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(f'CREATE SCHEMA "Theirs" AUTHORIZATION {LOCKED}')

    settings = DatabaseSettings(backend="postgres", postgres_url=locked, postgres_schema="Theirs")
    async with open_storage(settings, Paths(tmp_path)) as storage:
        await storage.runs.create("r1", RunRequest("t1"))

    with psycopg.connect(postgres.url) as admin:
        assert admin.execute('SELECT count(*) FROM "Theirs".runs').fetchone() == (1,)


async def test_a_newer_database_and_one_of_another_program_are_refused(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    newer, other = postgres.settings(), postgres.settings()
    async with open_storage(newer, Paths(tmp_path)):
        pass
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(f"UPDATE {newer.postgres_schema}.deerflow_version SET version_num = '9999'")
        admin.execute(f"CREATE SCHEMA {other.postgres_schema}")
        admin.execute(f"CREATE TABLE {other.postgres_schema}.runs (mine int)")

    assert "newer DeerFlow" in await refused(newer, tmp_path)
    assert "tables of another program" in await refused(other, tmp_path)
    with psycopg.connect(postgres.url) as admin:
        found = admin.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", (other.postgres_schema,)
        ).fetchall()
    assert found == [("runs",)]


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys; sys.modules['psycopg'] = None\n"
        "from pathlib import Path\n"
        "from deerflow.config import DatabaseSettings, Paths\n"
        "from deerflow.storage import open_storage\n"
        "async def main():\n"
        "    async with open_storage(DatabaseSettings(backend='postgres'), Paths(Path(sys.argv[1]))): pass\n"
        "asyncio.run(main())\n"
    )

    output = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True)

    assert "ConfigError" in output.stderr
    assert "deerflow install postgres" in output.stderr


async def test_statements_are_logged_when_enabled(
    postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="deerflow.storage")

    async with open_storage(postgres.settings(echo_sql=True), Paths(tmp_path)) as storage:
        await storage.threads.create("t1", "ann", {"secret": "value"})
        await storage.threads.get("t1")

    text = caplog.text
    assert "INSERT INTO threads" in text
    assert "SELECT id, user_id" in text
    assert "value" not in text
