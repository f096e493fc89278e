"""The store of memories is the database, or one of an installed package."""

from pathlib import Path

import pytest
from langgraph.store.memory import InMemoryStore

from deerflow.config import MemorySettings
from deerflow.memory import Memory, Scope
from deerflow.memory.store import DatabaseMemoryStore, create_memory_store
from deerflow.plugins import PluginError

CODE = """
from deerflow.memory import Memory, MemoryStore

class Nothing(MemoryStore):
    async def read(self, scope):
        return Memory(last_updated=self.settings.store_config["then"])

    async def change(self, scope, change):
        return change(await self.read(scope))

class Other:
    pass
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a store, and with one that is none."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "some_stores.py").write_text(CODE)
    about = tmp_path / "some_stores-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: some-stores\nVersion: 1.0\n")
    entries = "nothing = some_stores:Nothing\nother = some_stores:Other\ndeermem = some_stores:Nothing\n"
    (about / "entry_points.txt").write_text(f"[deerflow.memory_stores]\n{entries}")


@pytest.mark.usefixtures("package")
async def test_a_store_of_another_package_is_chosen_by_its_name() -> None:
    settings = MemorySettings(manager_class="nothing", store_config={"then": "once"})

    store = create_memory_store(settings, InMemoryStore())  # type: ignore[arg-type]

    assert await store.read(Scope("u")) == Memory(last_updated="once")


@pytest.mark.usefixtures("package")
def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(PluginError, match=r"'other' of some-stores .* is not a subclass of"):
        create_memory_store(MemorySettings(manager_class="other"), InMemoryStore())  # type: ignore[arg-type]


@pytest.mark.usefixtures("package")
def test_our_own_store_cannot_be_replaced_by_its_name() -> None:
    store = create_memory_store(MemorySettings(), InMemoryStore())  # type: ignore[arg-type]

    assert isinstance(store, DatabaseMemoryStore)


def test_a_store_that_is_not_here_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    store = create_memory_store(MemorySettings(manager_class="mem0"), InMemoryStore())  # type: ignore[arg-type]

    assert isinstance(store, DatabaseMemoryStore)
    assert "there is no mem0" in caplog.text
