"""Detects a process whose thread files are not shared with the other processes on its database.

A run that resumes in another process needs its files there. The folder of all users contains a marker file,
and the database stores the last marker seen.
"""

import asyncio
import time
import uuid
from pathlib import Path

from langgraph.store.base import BaseStore

from deerflow.config import Paths

_NAMESPACE = ("deerflow", "home")
_KEY = "mark"
_FILE = ".home-id"
_WRITING_SECONDS = 1


async def home_problem(store: BaseStore, paths: Paths, *, remember: bool) -> str | None:
    """Return the problem with the files' location; None when it is that of the last process.

    Args:
        remember: Store this folder as the right one.
    """
    folder = paths.users
    mark = await asyncio.to_thread(_mark_of, folder)
    known = await store.aget(_NAMESPACE, _KEY)
    if known is not None and known.value["mark"] == mark:
        return None
    if remember:
        await store.aput(_NAMESPACE, _KEY, {"mark": mark, "folder": str(folder)}, index=False)
    if known is None:
        return None
    return (
        f"{folder} is not the folder in which the last process on this database kept files "
        f"({known.value['folder']}), and runs that move between processes take no files along: let all "
        "processes share DEER_FLOW_HOME on one file system"
    )


def _mark_of(folder: Path) -> str:
    """Return the folder's marker; create it if it has none."""
    path = folder / _FILE
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x") as file:  # of several concurrent processes, one creates the marker
            file.write(uuid.uuid4().hex)
    except FileExistsError:
        deadline = time.monotonic() + _WRITING_SECONDS
        while path.stat().st_size == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
    return path.read_text()
