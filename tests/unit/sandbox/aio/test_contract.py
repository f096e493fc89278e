"""The sandbox contract, on containers of the stand-in engine."""

from collections.abc import AsyncIterator, Callable

import pytest
from contracts.sandbox_contract import SandboxContract

from deerflow.domain import ThreadFolders
from deerflow.sandbox import Sandbox

from .conftest import MakeProvider


class TestAioSandbox(SandboxContract):
    @pytest.fixture
    async def sandbox(
        self, make_provider: MakeProvider, thread: Callable[[str], ThreadFolders]
    ) -> AsyncIterator[Sandbox]:
        async with make_provider().acquire(thread("t1")) as sandbox:
            yield sandbox


class TestMirroredAioSandbox(SandboxContract):
    """Containers that share no folders with this host, such as those of a distant engine or cluster."""

    @pytest.fixture
    async def sandbox(
        self, make_provider: MakeProvider, thread: Callable[[str], ThreadFolders]
    ) -> AsyncIterator[Sandbox]:
        async with make_provider(thread_data_mounts=False).acquire(thread("t1")) as sandbox:
            yield sandbox
