"""Sandboxes in containers of the all-in-one (AIO) image."""

from deerflow.sandbox.aio.provider import AioSandboxProvider

__all__ = ["AioSandboxProvider"]
