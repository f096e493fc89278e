"""Takes pictures of a local HTML page at several widths with an installed Chromium, without network."""

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from _color import stop

# Debian's `chromium` is a shell script that reads /etc/chromium.d, which a sandbox may not have.
BROWSERS = (
    "/usr/lib/chromium/chromium",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
)
SECONDS = 60


def main() -> None:
    """Write one PNG per width."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the HTML file")
    parser.add_argument("--out", type=Path, required=True, help="folder for page-390.png ...")
    parser.add_argument("--widths", default="390,820,1280", help="widths in pixels (default 390,820,1280)")
    parser.add_argument("--height", type=int, default=1600, help="height in pixels (default 1600)")
    parser.add_argument("--dark", action="store_true", help="as a user with a dark system")
    options = parser.parse_args()
    if not options.page.is_file():
        stop(f"{options.page} is not a file")
    if not all(width.isdigit() and 200 <= int(width) <= 4000 for width in options.widths.split(",")):
        stop(f"--widths must be numbers from 200 to 4000, comma separated, not {options.widths!r}")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        known = ", ".join(BROWSERS[1:])
        stop(f"no browser is installed ({known}); an operator can add Debian's package chromium")
    options.out.mkdir(parents=True, exist_ok=True)
    files = []
    for width in options.widths.split(","):
        file = (options.out / f"{options.page.stem}-{width}{'-dark' if options.dark else ''}.png").resolve()
        _shoot(browser, options.page.resolve(), file, (int(width), options.height), options.dark)
        files.append(str(file))
    print(json.dumps({"files": files}, indent=1))


def _shoot(browser: str, page: Path, file: Path, size: tuple[int, int], dark: bool) -> None:
    # Chromium makes its window at least 500 pixels wide: a narrower page goes into a frame of that width.
    with tempfile.TemporaryDirectory() as profile:
        target = page
        if size[0] < 500:
            target = Path(profile) / "frame.html"
            target.write_text(
                "<!doctype html><style>*{margin:0;border:0} body{background:#8a8f98}</style>"
                f'<iframe src="{page.as_uri()}" '
                f'style="width:{size[0]}px;height:{size[1]}px;display:block"></iframe>'
            )
        command = [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--allow-file-access-from-files",
            f"--user-data-dir={profile}/profile",
            f"--window-size={max(size[0], 500)},{size[1]}",
            f"--screenshot={file}",
            "--virtual-time-budget=3000",
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            target.as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            stop(f"the browser did not finish {page.name} within {SECONDS} seconds")
        if not file.is_file():
            stop(f"the browser took no picture: {done.stderr.strip()[-300:]}")


if __name__ == "__main__":
    main()
