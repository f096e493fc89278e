"""Sandboxes in containers of the all-in-one (AIO) image."""

from deerflow.sandbox.aio.backend import ContainerBackend, ContainerWish, container_id
from deerflow.sandbox.aio.local import LocalContainerBackend
from deerflow.sandbox.aio.provider import AioSandboxProvider
from deerflow.sandbox.aio.remote import RemoteSandboxBackend

__all__ = [
    "AioSandboxProvider",
    "ContainerBackend",
    "ContainerWish",
    "LocalContainerBackend",
    "RemoteSandboxBackend",
    "container_id",
]
