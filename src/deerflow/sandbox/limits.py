"""Resource limits that the kernel enforces."""

from deerflow.config.sandbox import LimitSettings

MEGABYTE = 1_048_576
MAX_OPEN_FILES = 1024


def rlimits(limits: LimitSettings) -> dict[str, int]:
    """Return the resource limits that apply to each process."""
    return {
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": limits.cpu_seconds,
        "RLIMIT_FSIZE": limits.max_file_mb * MEGABYTE,
        "RLIMIT_NOFILE": MAX_OPEN_FILES,
        "RLIMIT_DATA": limits.memory_mb * MEGABYTE,
    }


def ulimits(limits: LimitSettings) -> str:
    """Return the same limits as shell commands, for a shell that cannot raise them afterwards.

    The kernel counts processes per user namespace, so the process limit applies to the sandbox alone.
    """
    return (
        f"ulimit -c 0 -t {limits.cpu_seconds} -f {limits.max_file_mb * 1024} -n {MAX_OPEN_FILES} "
        f"-d {limits.memory_mb * 1024} -u {limits.max_processes} || exit 125\n"
    )
