"""Runs one turn of a lead agent in a process of its own, so that a test can kill it.

python tests/support/lead_process.py BASE_URL FOLDER QUESTION
"""

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.lead import Lead

from deerflow.storage import CheckpointSaver
from deerflow.storage.sqlite.engine import SqliteEngine


async def main(base_url: str, folder: Path, question: str) -> None:
    engine = await SqliteEngine.open(folder / "checkpoints.db")
    server: Any = SimpleNamespace(base_url=base_url)
    lead = Lead(server, folder / "t1", checkpointer=CheckpointSaver(engine))
    await lead.ask(question)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
