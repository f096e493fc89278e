"""Reloads the settings when their files change; an invalid edit keeps the last valid settings."""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from deerflow.config.effect import RESTART_ONLY
from deerflow.config.environment import SettingsFiles, find_settings_files
from deerflow.config.extensions import ExtensionsSettings
from deerflow.config.extensions_file import alone_at, read_document, save_extensions
from deerflow.config.load import LoadedSettings, load_from
from deerflow.config.yaml_file import MAX_BYTES
from deerflow.errors import ConfigError

logger = logging.getLogger(__name__)

_SETTLED_NS = 1_000_000_000
"""A file modified this recently before a read may change again without a new timestamp."""

Stamp = tuple[tuple[int, int, int, int] | None, ...]
"""Inode, size, mtime and ctime of every watched file; None for a missing file."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Stamp and digest of the files at the last read."""

    watched: tuple[Path, ...]
    stamp: Stamp
    digest: bytes
    is_settled: bool


class SettingsSource:
    """The current settings of one process; thread-safe, and cheap to read when nothing changed."""

    def __init__(
        self, path: Path | None = None, *, env: Mapping[str, str] = os.environ, cwd: Path | None = None
    ) -> None:
        """Read the settings; raise ConfigError if they are invalid."""
        self._path = path
        self._env = dict(env)
        self._cwd = (cwd or Path.cwd()).absolute()
        self._lock = threading.Lock()
        self._problem: str | None = None
        files = self._files()
        self._reading = _read(files.watched)
        self._loaded = load_from(files)
        self._first = self._loaded

    @property
    def problem(self) -> str | None:
        """The error of the last reload; None if the files are valid."""
        return self._problem

    @property
    def restart_needed(self) -> tuple[str, ...]:
        """The sections that were changed since the start and apply only after a restart."""
        now, then = self._loaded.settings, self._first.settings
        return tuple(sorted(name for name in RESTART_ONLY if attrgetter(name)(now) != attrgetter(name)(then)))

    def current(self) -> LoadedSettings:
        """Return the settings in the files, or the last valid ones; the same object if unchanged."""
        reading = self._reading
        if _stamp(reading.watched) != reading.stamp or not reading.is_settled:
            with self._lock:
                self._refresh()
        return self._loaded

    def save_extensions(self, update: Mapping[str, Any]) -> ExtensionsSettings:
        """Write to the extensions file, one writer at a time; the next `current` returns the new value."""
        path = self._loaded.extensions_path
        with alone_at(path), self._lock:  # file lock first: do not block threads while waiting for a process
            return save_extensions(path, update, env=self._loaded.env)

    def edit_extensions(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> ExtensionsSettings:
        """Write the top-level keys that `change` returns for the file's contents; one writer at a time."""
        path = self._loaded.extensions_path
        with alone_at(path), self._lock:
            update = change(read_document(path).data)
            return save_extensions(path, update, env=self._loaded.env)

    def _files(self) -> SettingsFiles:
        return find_settings_files(self._path, env=self._env, cwd=self._cwd)

    def _refresh(self) -> None:
        before = self._reading
        self._reading = _read(before.watched)
        if self._reading.digest == before.digest:
            return
        try:
            files = self._files()
            self._refuse_half_written(files)
            # Stamp the files before loading them: an edit in between is then detected by the next call.
            self._reading = _read(files.watched)
            loaded = load_from(files)
        except ConfigError as error:
            self._problem = f"the last good settings stay in force: {error}"
            logger.error("settings could not be read again; %s", self._problem)
            return
        self._problem = None
        self._loaded = loaded
        logger.info("settings were read again from %s", loaded.source_path)

    def _refuse_half_written(self, files: SettingsFiles) -> None:
        """Treat a missing or empty file as an edit in progress, not as a request for the defaults."""
        old = self._loaded.source_path
        if old is None:
            return
        if not old.exists():
            raise ConfigError(f"{old} is gone; put it back, or restart to go on without it")
        if files.config == old and old.is_file() and old.stat().st_size == 0:
            raise ConfigError(f"{old} is empty")


def _read(watched: tuple[Path, ...]) -> _Reading:
    stamp = _stamp(watched)
    newest = max((max(entry[2:]) for entry in stamp if entry), default=0)
    return _Reading(watched, stamp, _digest(watched), time.time_ns() - newest > _SETTLED_NS)


def _stamp(watched: tuple[Path, ...]) -> Stamp:
    return tuple(_stamp_of(path) for path in watched)


def _stamp_of(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _digest(watched: tuple[Path, ...]) -> bytes:
    digest = hashlib.sha256()
    for path in watched:
        content = _content(path)
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.digest()


def _content(path: Path) -> bytes:
    """Return the contents of a file up to the size limit; never block on a FIFO."""
    try:
        if not path.is_file():
            return b"no file"
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        return f"unreadable {error.errno}".encode()
