"""A project folder with settings' files, and nothing of this computer's environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deerflow.config import LoadedSettings, SettingsSource, load_settings


@dataclass
class Project:
    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def extensions(self) -> Path:
        return self.root / "extensions_config.json"

    def write(self, text: str, name: str = "config.yaml") -> Path:
        path = self.root / name
        path.write_text(text, "utf-8")
        return path

    def load(self, text: str | None = None, env: Mapping[str, str] | None = None) -> LoadedSettings:
        if text is not None:
            self.write(text)
        return load_settings(env=self.env if env is None else env, cwd=self.root)

    def source(self) -> SettingsSource:
        return SettingsSource(env=self.env, cwd=self.root)
