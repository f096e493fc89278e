"""Interface of container backends: an engine on this host, or a cluster."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deerflow.domain import ThreadFolders
from deerflow.sandbox.paths import PathMapping

CONTAINER_PORT = 8080
IMAGE_USER = 1000
"""User id of commands in the image; files that a root server writes are chowned to it."""
DEFAULT_IMAGE = "ghcr.io/agent-infra/sandbox:latest"


@dataclass(frozen=True, slots=True)
class ContainerWish:
    """Specification of a container."""

    id: str
    user_id: str
    thread_id: str
    origin: str
    """The thread's folder on this host: distinguishes installations that use the same thread id."""
    mounts: Sequence[PathMapping] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class ContainerBackend(ABC):
    """Starts, discovers and stops containers by id."""

    @property
    @abstractmethod
    def refusal(self) -> str | None:
        """Why no container can be started, with the fix; None when one can."""

    @abstractmethod
    async def discover(self, wish: ContainerWish) -> str | None:
        """Return the address of a running container for `wish`, whichever process started it."""

    @abstractmethod
    async def create(self, wish: ContainerWish) -> str:
        """Start a container and return its address; it may not respond yet."""

    @abstractmethod
    async def destroy(self, container_id: str) -> None:
        """Stop and remove a container; a missing one is not an error."""

    @abstractmethod
    async def running(self) -> list[str]:
        """Return the ids of DeerFlow's running containers."""

    async def aclose(self) -> None:
        """Close connections; containers keep running."""
        return


def container_id(user_id: str, thread_id: str) -> str:
    """Return the id of a thread's container, the same in every process."""
    return hashlib.sha256(f"{user_id}:{thread_id}".encode()).hexdigest()[:16]


def owner_of(folders: ThreadFolders) -> str:
    """Return the user of a thread, from its folder's path `{user}/threads/{thread}`."""
    return folders.root.parent.parent.name
