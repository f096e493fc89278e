"""Sets up what tests need beyond Python's packages: a browser (as root), the JS client.

What cannot be had is said, and the tests that need it skip with the same reason.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
JS = ROOT / "tests/e2e/js"


def main() -> None:
    """Prepare everything that is missing."""
    if shutil.which("npm") is None:
        print("node and npm are missing: tests of the page and of the JS client will be skipped")
        return
    _install_js_client()
    _install_browser()


def _install_js_client() -> None:
    lock, marker = JS / "package-lock.json", JS / "node_modules/.package-lock.json"
    if not marker.exists() or marker.stat().st_mtime < lock.stat().st_mtime:
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=JS, check=True)
        marker.touch()


def _install_browser() -> None:
    if any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print("no Chromium here: tests of the page will be skipped (install chromium to run them)")
        return
    print("installing Debian's Chromium for the tests of the page", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        done = subprocess.run(["apt-get", *command], env=env, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            print(f"apt-get {command[0]} failed: tests of the page will be skipped", file=sys.stderr)
            return


if __name__ == "__main__":
    main()
