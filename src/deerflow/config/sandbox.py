"""Settings of the sandbox."""

from pydantic import Field

from deerflow.config.section import Section


class MountSettings(Section):
    """A host folder shown inside the sandbox."""

    host_path: str = Field(description="The folder on this host.")
    container_path: str = Field(description="Where commands see it.")
    read_only: bool = Field(False, description="Commands may not write to it.")


class SandboxSettings(Section):
    """Where commands run."""

    use: str | None = Field(None, description="A tier's name, an installed plug-in's, or `module:Class`.")
    allow_host_bash: bool = Field(False, description="With `local`: commands may run on the bare host.")
    mounts: tuple[MountSettings, ...] = Field((), description="Host folders that commands may use.")
    environment: dict[str, str] = Field({}, description="Variables that commands see.")
    bash_command_timeout: float = Field(600, gt=0, description="Seconds that one command may run.")
    bash_output_max_chars: int = Field(20_000, ge=0, description="Characters kept of a command's output.")
    read_file_output_max_chars: int = Field(50_000, ge=0, description="Characters that one read returns.")
    ls_output_max_chars: int = Field(20_000, ge=0, description="Characters that one listing returns.")
