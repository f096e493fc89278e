"""Settings of the sandbox."""

from typing import Literal

from pydantic import Field

from deerflow.config.section import OpenSection, Section


class MountSettings(Section):
    """A host folder shown inside the sandbox."""

    host_path: str = Field(min_length=1, description="The folder on this host.")
    container_path: str = Field(pattern=r"^/", description="Where commands see it: a path from the root.")
    read_only: bool = Field(False, description="Commands may not write to it.")


class NetworkSettings(Section):
    """What commands may reach; nothing unless it is listed."""

    allow: tuple[str, ...] = Field(
        (), description="Hosts that commands may reach, such as `api.example.org` or `*.example.org:8443`."
    )
    allow_cidrs: tuple[str, ...] = Field(
        (), description="Private address ranges that listed hosts may resolve to, such as `10.1.0.0/16`."
    )


class LimitSettings(Section):
    """How much the running commands of a thread, and all they start, may use together."""

    max_commands: int = Field(
        32,
        ge=1,
        description="Commands of a thread, those of its sub-agents included, that run at the same time; "
        "further ones wait in line. They share the limits below.",
    )
    memory_mb: int = Field(2048, ge=16, description="Megabytes of memory.")
    max_processes: int = Field(512, ge=4, description="Processes and their threads at once.")
    cpu_seconds: int = Field(600, ge=1, description="Seconds of processor time of one process.")
    max_file_mb: int = Field(512, ge=1, description="Megabytes of the largest file it may write.")
    disk_mb: int = Field(4096, ge=1, description="Megabytes of a thread's folders together.")
    max_files: int = Field(200_000, ge=10, description="Files in a thread's folders together.")
    tmp_mb: int = Field(256, ge=1, description="Megabytes of the sandbox's own `/tmp`.")


class OwnershipSettings(Section):
    """How several servers agree on who owns a container."""

    type: Literal["memory", "redis"] = Field("memory", description="Where the owners are kept.")
    redis_url: str | None = Field(None, description="The Redis server.")
    renewal_interval_seconds: float = Field(30, gt=0, description="How often an owner says that it lives.")
    ttl_multiplier: float = Field(4, ge=2, description="Missed renewals after which an owner counts as dead.")
    key_prefix: str = Field("deerflow:sandbox:owner", description="What the keys start with.")


class SandboxSettings(OpenSection):
    """Where commands run."""

    use: str | None = Field(
        None,
        description="A tier (`isolated`, `landlock`, `local`, `aio`), an installed plug-in's name, or "
        "`module:Class`. Absent: `isolated` on Linux, `local` elsewhere.",
    )
    allow_host_bash: bool = Field(
        False, description="With `local`: commands may run on the bare host, without any isolation."
    )
    network: NetworkSettings = Field(
        NetworkSettings.model_construct(), description="What commands may reach."
    )
    limits: LimitSettings = Field(
        LimitSettings.model_construct(), description="How much a thread's commands may use."
    )
    max_commands: int = Field(
        128,
        ge=1,
        description="Commands of all threads that this server runs at the same time; further ones wait, and "
        "the threads get their turns one after the other.",
    )
    mounts: tuple[MountSettings, ...] = Field((), description="Host folders that commands may use.")
    environment: dict[str, str] = Field({}, description="Variables that commands see.")
    bash_command_timeout: float = Field(600, gt=0, description="Seconds that one command may run.")
    bash_output_max_chars: int = Field(20_000, ge=0, description="Characters kept of a command's output.")
    read_file_output_max_chars: int = Field(50_000, ge=0, description="Characters that one read returns.")
    ls_output_max_chars: int = Field(20_000, ge=0, description="Characters that one listing returns.")
    image: str | None = Field(None, description="With `aio`: the container image.")
    port: int | None = Field(None, ge=1, le=65535, description="With `aio`: the first port to use.")
    container_prefix: str = Field(
        "deer-flow-sandbox", description="With `aio`: what containers' names start with."
    )
    replicas: int = Field(3, gt=0, description="With `aio`: containers kept at once.")
    idle_timeout: int = Field(
        600, ge=0, description="With `aio`: seconds after which an idle container is stopped; 0: never."
    )
    overflow_policy: Literal["wait", "burst", "reject"] = Field(
        "wait", description="With `aio`: what happens when all containers are taken."
    )
    acquire_timeout: float = Field(30, gt=0, description="With `aio`: seconds to wait for a container.")
    burst_limit: int = Field(0, ge=0, description="With `aio` and `burst`: containers beyond `replicas`.")
    health_check_skip_seconds: float | None = Field(
        None, ge=0, description="With `aio`: how long a healthy container is trusted without asking."
    )
    thread_data_mounts: bool | None = Field(
        None, description="With `aio`: threads' folders are mounted; absent: when the engine is on this host."
    )
    ownership: OwnershipSettings | None = Field(None, description="With `aio` on several servers.")
    provisioner_url: str | None = Field(None, description="With `aio`: the Kubernetes provisioner.")
    provisioner_api_key: str | None = Field(None, description="With `aio`: the provisioner's key.")
