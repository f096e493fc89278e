"""What follows the settings, and what is left of it when they change."""

import gc
import weakref
from pathlib import Path

from deerflow.app import DeerFlow
from deerflow.config import SettingsSource


async def test_agents_of_earlier_settings_are_let_go(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("sandbox: {use: local}\n")
    env = {"DEER_FLOW_HOME": str(tmp_path / "home")}
    async with DeerFlow.open(SettingsSource(config, env=env, cwd=tmp_path)) as house:
        earlier = weakref.ref(house._rooms.now.agents)

        config.write_text("sandbox: {use: local}\ntitle: {enabled: false}\n")
        await house.refresh()
        gc.collect()

        assert not house.settings.title.enabled
        assert earlier() is None
