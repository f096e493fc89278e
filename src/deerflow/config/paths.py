"""Where DeerFlow keeps its files on this host."""

from dataclasses import dataclass
from pathlib import Path

from deerflow.domain import ThreadFolders, folder_name


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one home."""

    home: Path
    users_root: Path | None = None
    """Where users' threads live when not under the home (a root server whose home others cannot enter)."""
    data_root: Path | None = None
    """Where the database is when not under the home (`database.sqlite_dir`)."""

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
        """Return where a user's own agents are, created or not."""
        return self.thread(user_id, "-").root.parents[1] / "agents"

    def thread(self, user_id: str, thread_id: str) -> ThreadFolders:
        """Return the folders of one thread, created or not."""
        return ThreadFolders(thread_id, self.users / folder_name(user_id) / "threads" / thread_id)
