"""What the guide on models shows is true."""

import re
from pathlib import Path

import yaml

from deerflow.config import ModelSettings
from deerflow.models import ModelFactory
from deerflow.models.providers import LOCAL_SERVERS, PROVIDERS

GUIDE = (Path(__file__).parents[3] / "docs" / "howto" / "connect-a-model.md").read_text()


def test_the_entries_of_the_guide_can_be_built() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.S)
    entries = [ModelSettings.model_validate(entry) for entry in yaml.safe_load(example)["models"]]
    factory = ModelFactory(entries, env={})

    assert factory.names == ("gpt", "deepseek", "claude", "local")
    for name in factory.names:
        factory.create(name, thinking_enabled=False)
        factory.create(name)


def test_every_key_and_local_server_is_in_the_guide() -> None:
    keys = [name for one in PROVIDERS for name in (f"{one.prefix}_API_KEY", *one.key_variables)]
    ports = [server.url.rpartition(":")[2] for server in LOCAL_SERVERS]

    assert [name for name in keys if f"`{name}`" not in GUIDE] == []
    assert [port for port in ports if port not in GUIDE] == []
