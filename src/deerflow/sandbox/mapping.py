"""Rewrites paths for tiers without mounts: virtual to host in commands, host to virtual in output."""

import re
import shlex
from functools import cached_property

from deerflow.sandbox.paths import PathTable

_BEFORE = r"(?<![\w./-])"
_AFTER = r"(?=$|[/\s\"'`;|&<>(){}\[\]:,=*?!$])"


class PathRewriter:
    """Translates between a thread's virtual paths and host paths."""

    def __init__(self, table: PathTable) -> None:
        real = {mapping.virtual: str(mapping.host) for mapping in table.mappings}
        # `ls /mnt/user-data` works when all folders below it share a parent
        parents = {virtual.rpartition("/")[0]: host.rpartition("/")[0] for virtual, host in real.items()}
        if "/mnt/user-data" in parents:
            real.setdefault("/mnt/user-data", parents["/mnt/user-data"])
        self._real = real
        self._table = table

    # Compiled on the first command: it costs milliseconds, and most turns run no command.
    @cached_property
    def _in_command(self) -> re.Pattern[str]:
        return _any_of(self._real, _BEFORE, _AFTER)

    @cached_property
    def _virtual(self) -> dict[str, str]:
        virtual = {host: virtual for virtual, host in self._real.items()}
        return virtual | {str(m.host.resolve()): m.virtual for m in self._table.mappings}

    @cached_property
    def _in_output(self) -> re.Pattern[str]:
        return _any_of(self._virtual, "", r"(?![\w-])")

    def to_host(self, command: str) -> str:
        """Return a shell command with virtual paths replaced by host paths."""
        return self._in_command.sub(lambda found: _shell_safe(self._real[found.group()]), command)

    def host_path(self, virtual: str) -> str:
        """Return the host path of a virtual path."""
        if virtual in self._real:
            return self._real[virtual]
        return self._in_command.sub(lambda found: self._real[found.group()], virtual)

    def to_virtual(self, text: str) -> str:
        """Return output with host paths replaced by virtual paths."""
        return self._in_output.sub(lambda found: self._virtual[found.group()], text)


def _any_of(names: dict[str, str], before: str, after: str) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(f"{before}(?:{'|'.join(re.escape(name) for name in longest_first)}){after}")


def _shell_safe(path: str) -> str:
    # Quotes would close a quoted string around the path, so special characters are backslash-escaped.
    return path if shlex.quote(path) == path else re.sub(r"([^\w@%+=:,./-])", r"\\\1", path)
