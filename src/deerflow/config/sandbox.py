"""Settings of the sandbox."""

from typing import Literal

from pydantic import Field

from deerflow.config.section import OpenSection, Section, section


class MountSettings(Section):
    """A host folder mounted into the sandbox."""

    host_path: str = Field(min_length=1, description="Path of the folder on this host.")
    container_path: str = Field(pattern=r"^/", description="Absolute path of the folder in the sandbox.")
    read_only: bool = Field(False, description="Mount it read-only.")


class NetworkSettings(Section):
    """Network access of commands; nothing is reachable by default."""

    allow: tuple[str, ...] = Field(
        (), description="Reachable hosts, such as `api.example.org` or `*.example.org:8443`."
    )
    allow_cidrs: tuple[str, ...] = Field(
        (), description="Private networks that these hosts may resolve to, such as `10.1.0.0/16`."
    )


class LimitSettings(Section):
    """Resource limits of the commands of one thread, together with all processes they start."""

    max_commands: int = Field(
        32,
        ge=1,
        description="Maximum number of commands of a thread at once, those of its sub-agents included; "
        "further ones wait. They share the limits below.",
    )
    memory_mb: int = Field(2048, ge=16, description="Memory in megabytes.")
    max_processes: int = Field(512, ge=4, description="Maximum number of processes and threads.")
    cpu_seconds: int = Field(600, ge=1, description="Processor time of one process in seconds.")
    max_file_mb: int = Field(512, ge=1, description="Maximum size of a written file in megabytes.")
    disk_mb: int = Field(4096, ge=1, description="Maximum total size of the thread's folders in megabytes.")
    max_files: int = Field(200_000, ge=10, description="Maximum number of files in the thread's folders.")
    tmp_mb: int = Field(256, ge=1, description="Size of the sandbox's `/tmp` in megabytes.")


class SandboxSettings(OpenSection):
    """The sandbox in which agents run commands and edit files."""

    use: str | None = Field(
        None,
        description="Provider: `isolated` (namespaces), `landlock`, `local` (no isolation), `aio` "
        "(containers), the name of an installed plug-in, or `module:Class`. Absent: `isolated` "
        "on Linux, `local` elsewhere.",
    )
    allow_host_bash: bool = Field(
        False, description="With `local`: allow commands on the host, without isolation."
    )
    network: NetworkSettings = section(NetworkSettings)
    limits: LimitSettings = section(LimitSettings)
    max_commands: int = Field(
        128,
        ge=1,
        description="Maximum number of commands of all threads at once on this server; further ones wait, "
        "and the threads take turns.",
    )
    mounts: tuple[MountSettings, ...] = Field((), description="Host folders mounted into the sandbox.")
    environment: dict[str, str] = Field({}, description="Environment variables of commands.")
    bash_command_timeout: float = Field(600, gt=0, description="Maximum duration of a command in seconds.")
    bash_output_max_chars: int = Field(20_000, ge=0, description="Maximum output of a command in characters.")
    read_file_output_max_chars: int = Field(
        50_000, ge=0, description="Maximum result of `read_file` in characters."
    )
    ls_output_max_chars: int = Field(20_000, ge=0, description="Maximum result of `ls` in characters.")
    image: str | None = Field(None, description="With `aio`: container image.")
    port: int | None = Field(None, ge=1, le=65535, description="With `aio`: first port for containers.")
    container_prefix: str = Field("deer-flow-sandbox", description="With `aio`: prefix of container names.")
    replicas: int = Field(3, gt=0, description="With `aio`: maximum number of containers.")
    idle_timeout: int = Field(
        600, ge=0, description="With `aio`: seconds after which an idle container is stopped; 0: never."
    )
    overflow_policy: Literal["wait", "burst", "reject"] = Field(
        "wait",
        description="With `aio`: when all containers are in use, `wait` for one, start further ones "
        "(`burst`), or `reject` the request.",
    )
    acquire_timeout: float = Field(
        30, gt=0, description="With `aio`: maximum wait for a container in seconds."
    )
    burst_limit: int = Field(
        0, ge=0, description="With `burst`: maximum number of containers beyond `replicas`."
    )
    health_check_skip_seconds: float | None = Field(
        None, ge=0, description="With `aio`: seconds after a successful health check without another one."
    )
    thread_data_mounts: bool | None = Field(
        None, description="With `aio`: mount the threads' folders. Absent: if the engine is on this host."
    )
    provisioner_url: str | None = Field(None, description="With `aio`: URL of the Kubernetes provisioner.")
    provisioner_api_key: str | None = Field(None, description="With `aio`: API key of the provisioner.")
