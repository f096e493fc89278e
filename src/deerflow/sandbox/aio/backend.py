"""Where containers come from: the interface that an engine on this host and a cluster share."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deerflow.domain import ThreadFolders
from deerflow.sandbox.paths import PathMapping

CONTAINER_PORT = 8080
IMAGE_USER = 1000
"""Who runs commands in the image; files that a root server writes are given to that user."""
DEFAULT_IMAGE = "ghcr.io/agent-infra/sandbox:latest"


@dataclass(frozen=True, slots=True)
class ContainerWish:
    """What a container is to be like."""

    id: str
    user_id: str
    thread_id: str
    origin: str
    """The thread's folder on this host: two installations may know the same thread by the same name."""
    mounts: Sequence[PathMapping] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class ContainerBackend(ABC):
    """Starts, finds and stops containers by their ids."""

    @property
    @abstractmethod
    def refusal(self) -> str | None:
        """Why no container can be started here, with the fix; None when one can."""

    @abstractmethod
    async def discover(self, wish: ContainerWish) -> str | None:
        """Return the address of the container that already runs for `wish`, whoever started it."""

    @abstractmethod
    async def create(self, wish: ContainerWish) -> str:
        """Start a container and return its address; it may not answer yet."""

    @abstractmethod
    async def destroy(self, container_id: str) -> None:
        """Stop a container and remove it; one that is gone is fine."""

    @abstractmethod
    async def running(self) -> list[str]:
        """Return the ids of our containers that run."""

    async def aclose(self) -> None:
        """Let go of connections; containers stay."""
        return


def container_id(user_id: str, thread_id: str) -> str:
    """Return the id that every process gives to a thread's container."""
    return hashlib.sha256(f"{user_id}:{thread_id}".encode()).hexdigest()[:16]


def owner_of(folders: ThreadFolders) -> str:
    """Return whose thread it is, as the folders' layout `{user}/threads/{thread}` tells."""
    return folders.root.parent.parent.name
