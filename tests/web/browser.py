"""A browser for tests: real headless Chromium, driven through `web/e2e/driver.mjs`."""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
STATIC = ROOT / "src/deerflow/gateway/static"
SOURCES = ("src", "public", "index.html", "vite.config.ts", "package-lock.json")
SETUP_SECONDS = 300
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
        self._node.wait(60)
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
    def hindrances(self) -> list[str]:
        """What axe-core finds on the page as it is."""
        return list(self.do("hindrances"))

    @property
    def troubles(self) -> list[str]:
        """What must never happen: script errors, dialogs, windows, requests to other hosts."""
        return list(self.do("troubles"))


def find_chromium() -> str:
    """Return an installed Chromium; as root on Debian, install one."""
    with _alone():
        found = os.environ.get("CHROMIUM_PATH") or _installed() or _install()
    if found is None:
        raise PageUnavailableError("no Chromium here: install one, or name one with CHROMIUM_PATH")
    return found


def build_page() -> None:
    """Build the page unless what is there is newer than its sources."""
    if shutil.which("npm") is None:
        raise PageUnavailableError("no npm here: install Node.js 20.19 or newer")
    with _alone():
        if not all((WEB / "node_modules" / name).is_dir() for name in ("playwright-core", "axe-core")):
            _run(["npm", "ci"])
        if not _is_built():
            _run(["npm", "run", "build"])


@contextmanager
def _alone() -> Iterator[None]:
    """Let one test process at a time change what all of them use."""
    with (WEB / ".build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _installed() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def _install() -> str | None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return None
    _run(["apt-get", "update"])
    _run(["apt-get", "install", "-y", "chromium"])
    return _installed()


def _is_built() -> bool:
    index = STATIC / "index.html"
    if not index.is_file():
        return False
    built = index.stat().st_mtime
    files = (file for name in SOURCES for file in [WEB / name, *(WEB / name).rglob("*")])
    return all(file.stat().st_mtime <= built for file in files if ".test." not in file.name)


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        cwd=WEB,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        timeout=SETUP_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}"
