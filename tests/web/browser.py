"""A browser for tests: real headless Chromium, driven through `web/e2e/driver.mjs`."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
STATIC = ROOT / "src/deerflow/gateway/static"
SOURCES = ("src", "public", "index.html", "vite.config.ts", "package-lock.json")
BUILD_SECONDS = 300
Target = dict[str, Any]


class PageUnavailableError(Exception):
    """The page cannot be tested here; the message says why."""


class Browser:
    """One tab: what a person does and sees. Every wait has a limit and tells what the page showed."""

    def __init__(self, chromium: str) -> None:
        self._node = subprocess.Popen(
            ["node", "e2e/driver.mjs"],
            cwd=WEB,
            env={**os.environ, "CHROMIUM_PATH": chromium},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.close()
        self._node.wait(30)
        self._node.stdout.close()

    def do(self, command: str, **options: Any) -> Any:
        """Run one command of the driver and return its answer."""
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps({"command": command, **options}) + "\n")
        self._node.stdin.flush()
        line = self._node.stdout.readline()
        assert line, "the browser is gone"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["ok"]

    def open(self, url: str, **options: Any) -> None:
        """Open the page with a clean profile."""
        self.do("start", origin=url, **options)

    def say(self, text: str) -> None:
        """Write a message and send it with Enter."""
        message = {"label": "Message to DeerFlow"}
        self.do("fill", target=message, value=text)
        self.do("press", target=message, key="Enter")

    def click(self, name: str, *, role: str = "button", **target: Any) -> None:
        self.do("click", target={"role": role, "name": name, **target})

    def sees(self, text: str) -> None:
        """Wait until `text` is on the page."""
        self.do("see", target={"text": text})

    def sees_no(self, text: str) -> None:
        """Wait until `text` is not on the page."""
        self.do("see", target={"text": text}, state="hidden")

    def waits_for(self, css: str) -> None:
        self.do("see", target={"css": css})

    def text(self, css: str) -> str:
        return str(self.do("text", target={"css": css}))

    def count(self, css: str) -> int:
        return int(self.do("count", target={"css": css}))

    def evaluate(self, script: str) -> Any:
        return self.do("evaluate", script=script)

    def waits_until_idle(self) -> None:
        """Wait until no run is under way."""
        self.do("see", target={"css": "button[aria-label=Send]"})

    @property
    def troubles(self) -> list[str]:
        """What must never happen: script errors, dialogs, windows, requests to other hosts."""
        return list(self.do("troubles"))


def find_chromium() -> str:
    """Return an installed Chromium; as root on Debian, install one."""
    named = os.environ.get("CHROMIUM_PATH")
    found = (
        named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    )
    if found:
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise PageUnavailableError("no Chromium here: install one, or set CHROMIUM_PATH")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": BUILD_SECONDS}
    subprocess.run([apt, "update"], check=False, **quiet)  # type: ignore[call-overload]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([apt, "install", "-y", "chromium"], check=False, env=environment, **quiet)  # type: ignore[call-overload]
    installed = shutil.which("chromium")
    if installed is None:
        raise PageUnavailableError("no Chromium here, and apt-get could not install it")
    return installed


def build_page() -> None:
    """Build the page unless what is there is newer than its sources; safe beside other test processes."""
    if shutil.which("npm") is None:
        raise PageUnavailableError("no npm here: install Node.js 20.19 or newer")
    with (WEB / ".build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (WEB / "node_modules/playwright-core").is_dir():
            _npm("ci")
        if not _is_built():
            _npm("run", "build")


def _is_built() -> bool:
    index = STATIC / "index.html"
    if not index.is_file():
        return False
    built = index.stat().st_mtime
    files = (file for name in SOURCES for file in [WEB / name, *(WEB / name).rglob("*")])
    return all(file.stat().st_mtime <= built for file in files if ".test." not in file.name)


def _npm(*arguments: str) -> None:
    done = subprocess.run(
        ["npm", *arguments], cwd=WEB, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert done.returncode == 0, f"npm {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}"
