"""A server to be killed: opens a sandbox, says so, and runs what it is told.

Usage: victim.py TIER ROOT MARK COMMAND
"""

import asyncio
import sys
from pathlib import Path

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.sandbox import create_sandbox_provider


async def main() -> None:
    tier, root, mark, command = sys.argv[1:5]
    settings = SandboxSettings(use=tier, environment={"ATTACK_MARK": mark})
    provider = create_sandbox_provider(settings)
    async with provider.acquire(
        ThreadFolders("t1", Path(root) / "users" / "u" / "threads" / "t1")
    ) as sandbox:
        await sandbox.execute_command("true")
        print("ready", flush=True)
        while True:
            await sandbox.execute_command(command, on_output=lambda text: print(text, end="", flush=True))


asyncio.run(main())
