"""Base provider of tiers with a self-test; repeats the test when a sandbox did not start."""

from abc import abstractmethod
from pathlib import Path

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.base import Sandbox
from deerflow.sandbox.diagnosis import diagnose
from deerflow.sandbox.gate import SelfTestCache
from deerflow.sandbox.paths import temporary_folder
from deerflow.sandbox.pool import ThreadSandboxProvider
from deerflow.sandbox.selftest import SelfTest


class ProbingSandboxProvider(ThreadSandboxProvider):
    """Shared part of the providers of the confining tiers."""

    def __init__(self, settings: SandboxSettings, *, skills_root: Path | None = None) -> None:
        super().__init__(settings, skills_root=skills_root)
        self.gate = SelfTestCache(self.probe)

    @abstractmethod
    async def probe(self) -> SelfTest:
        """Run the probes in a separate sandbox and return whether its isolation holds."""

    @override
    def acquire(self, folders: ThreadFolders) -> Sandbox:
        self.gate.look_again()
        return super().acquire(folders)

    @override
    def is_fit(self, folders: ThreadFolders) -> bool:
        return temporary_folder(folders).is_dir()  # created with the sandbox, deleted with the thread

    @override
    async def self_test(self) -> SelfTest:
        return await self.gate.test()

    @property
    @override
    def last_test(self) -> SelfTest | None:
        return self.gate.last

    async def failed(self, text: str) -> SandboxUnavailableError:
        """Return the error of a command whose sandbox did not start, after a new self-test."""
        refusal = await self.gate.doubt()
        if refusal:
            return SandboxUnavailableError(refusal)
        found = diagnose(text)
        return SandboxUnavailableError(
            f"This command was not run: {found.reason}. Run it again; if that does not help: {found.fix}"
        )

    @override
    async def aclose(self) -> None:
        await super().aclose()
        await self.gate.aclose()
