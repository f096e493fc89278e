"""Settings of the smaller rooms, one section each."""

from typing import Literal

from pydantic import Field

from deerflow.config.section import Section


class DatabaseSettings(Section):
    """Where threads, runs, events and checkpoints are kept."""

    backend: Literal["memory", "sqlite", "postgres"] = Field("sqlite", description="Which database.")
    sqlite_dir: str | None = Field(None, description="Folder of the SQLite file; `{home}/data` when absent.")


class UploadSettings(Section):
    """How much a user may upload to a thread."""

    max_files: int = Field(10, ge=1, description="Files in one upload.")
    max_file_size: int = Field(52_428_800, ge=1, description="Bytes of one file.")
    max_total_size: int = Field(104_857_600, ge=1, description="Bytes of one upload.")


class TitleSettings(Section):
    """How threads get their titles."""

    enabled: bool = Field(True, description="Give threads a title after the first exchange.")
    max_words: int = Field(6, ge=1, le=20, description="Words in a title.")
    max_chars: int = Field(60, ge=10, le=200, description="Characters in a title.")
    model_name: str | None = Field(None, description="Model that writes it; absent: cut from the question.")


class SubagentsSettings(Section):
    """How work is delegated."""

    timeout_seconds: float = Field(1800, ge=1, description="Seconds that one task may take.")
    max_turns: int | None = Field(None, ge=1, description="Model calls of one task, for every sub-agent.")
    max_running: int = Field(64, ge=1, description="Tasks running at once in this process.")
