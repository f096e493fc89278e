"""Makes folders that the commands' user cannot access, such as skills below root's home, visible to it.

Root bind-mounts them, in a mount namespace of the one command, to a path that the user can access; bwrap,
which runs as that user, mounts them from there.
"""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.paths import PathTable
from deerflow.sandbox.users import STATE_ROOT, open_folder, unreachable

_MOUNT = (
    'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 125; shift 2; done; '
    'shift; unset PWD OLDPWD; exec "$@"'
)


def staged(table: PathTable, uid: int | None) -> tuple[PathTable, list[str]]:
    """Return the table with accessible folders, and the command prefix that mounts them before bwrap."""
    closed = unreachable(table, uid)
    if not closed:
        return table, []
    stages = {mapping.host: _stage(mapping.host) for mapping in closed}
    mappings = [replace(found, host=stages.get(found.host, found.host)) for found in table.mappings]
    mounting = [
        "/usr/bin/unshare",
        "--mount",
        "--propagation",
        "private",
        "--",
        "/bin/sh",
        "-c",
        _MOUNT,
        "sh",
    ]
    for source, stage in stages.items():
        mounting += [str(source), str(stage)]
    return PathTable(mappings), [*mounting, "--"]


def _stage(source: Path) -> Path:
    name = hashlib.sha256(os.fsencode(source)).hexdigest()[:16]
    stage = open_folder(STATE_ROOT / "stage" / name)
    if stage is None:
        raise SandboxUnavailableError(
            f"source path {source}: Permission denied, and {STATE_ROOT} cannot be used"
        )
    return stage
