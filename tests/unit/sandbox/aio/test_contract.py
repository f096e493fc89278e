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
        async with make_provider().lend(thread("t1")) as sandbox:
            yield sandbox
