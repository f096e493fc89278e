"""Sets up what tests need beyond Python's packages: a browser and ripgrep (as root), the JS client.

What cannot be had is said, and the tests that need it skip with the same reason.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
JS = ROOT / "tests/e2e/js"
PROGRAMS = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "ripgrep": ("rg",)}
"""Debian's packages and the commands that show they are there."""


def main() -> None:
    """Prepare everything that is missing."""
    _install_programs()
    if shutil.which("npm") is None:
        print("node and npm are missing: tests of the page and of the JS client will be skipped")
    else:
        _install_js_client()


def _install_js_client() -> None:
    lock, marker = JS / "package-lock.json", JS / "node_modules/.package-lock.json"
    if not marker.exists() or marker.stat().st_mtime < lock.stat().st_mtime:
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=JS, check=True)
        marker.touch()


def _install_programs() -> None:
    missing = [package for package, commands in PROGRAMS.items() if not any(map(shutil.which, commands))]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"not here: {', '.join(missing)}; the tests that need them will be skipped")
        return
    print(f"installing for the tests: {', '.join(missing)}", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        done = subprocess.run(["apt-get", *command], env=env, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            print(f"apt-get {command[0]} failed: the tests that need them will be skipped", file=sys.stderr)
            return


if __name__ == "__main__":
    main()
