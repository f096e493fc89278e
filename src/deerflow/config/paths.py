"""Paths of DeerFlow's files on this host."""

from dataclasses import dataclass
from pathlib import Path

from deerflow.domain import ThreadFolders, folder_name


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one DeerFlow home directory."""

    home: Path
    users_root: Path | None = None
    """Folder of users' threads if not under `home` (a server run by root whose home others cannot enter)."""
    data_root: Path | None = None
    """Folder of the database if not under `home` (`database.sqlite_dir`)."""

    @property
    def data(self) -> Path:
        return self.data_root or self.home / "data"

    @property
    def database(self) -> Path:
        return self.data / "deerflow.db"

    @property
    def users(self) -> Path:
        return self.users_root or self.home / "users"

    def agents(self, user_id: str) -> Path:
        """Return the folder of a user's custom agents; it may not exist."""
        return self.thread(user_id, "-").root.parents[1] / "agents"

    def thread(self, user_id: str, thread_id: str) -> ThreadFolders:
        """Return the folders of one thread; they may not exist."""
        return ThreadFolders(thread_id, self.users / folder_name(user_id) / "threads" / thread_id)
