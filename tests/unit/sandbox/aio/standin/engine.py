"""Stands in for `docker`: the few commands we use, starting the stand-in image in a bubblewrap.

Containers are files in the folder `STANDIN_ENGINE`; mounts, variables, labels, names and published ports
are real. It is started with a bare interpreter, to be as quick as the real one.
"""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

STATE = Path(os.environ.get("STANDIN_ENGINE", "."))
IMAGE = Path(__file__).with_name("image.py")
VALUE_OPTIONS = {
    "--name",
    "--label",
    "--publish",
    "--security-opt",
    "--memory",
    "--pids-limit",
    "--mount",
    "--env",
}


def fail(message: str, code: int = 1) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)


def run(words: list[str]) -> None:
    options: dict[str, list[str]] = {}
    while words and words[0].startswith("--"):
        option = words.pop(0)
        options.setdefault(option, []).append(words.pop(0) if option in VALUE_OPTIONS else "")
    (image,) = words
    name = options["--name"][0]
    if (STATE / f"{name}.json").exists():
        fail(f'docker: Conflict. The container name "/{name}" is already in use by container "c0ffee".', 125)
    host, port_text, inner = options["--publish"][0].split(":")
    try:
        listener = listen(int(port_text or 0))
    except OSError:
        fail(f"docker: Bind for {host}:{port_text} failed: port is already allocated.", 125)
    port = listener.getsockname()[1]
    environment = {name: os.environ[name] for name in options.get("--env", []) if name in os.environ}
    mounts = [
        dict(part.partition("=")[::2] for part in next(csv.reader([text])))
        for text in options.get("--mount", [])
    ]
    process = start(listener, mounts, environment, STATE / f"{name}.log")
    about = {
        "Name": f"/{name}",
        "Pid": process.pid,
        "State": {"Running": True},
        "Config": {"Image": image, "Labels": dict(text.split("=", 1) for text in options["--label"])},
        "HostConfig": {"Memory": options.get("--memory"), "PidsLimit": options.get("--pids-limit")},
        "NetworkSettings": {"Ports": {f"{inner}/tcp": [{"HostIp": host, "HostPort": str(port)}]}},
        "Argv": sys.argv,
    }
    unfinished = STATE / f"{name}.{os.getpid()}"
    unfinished.write_text(json.dumps(about))
    unfinished.rename(STATE / f"{name}.json")  # who looks sees all of it or nothing
    print("c0ffee")


def start(
    listener: socket.socket, mounts: list[dict[str, str]], environment: dict[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    """Start a container that answers where somebody listens already: nobody can take its port meanwhile."""
    walls = [os.environ["STANDIN_BWRAP"], "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-pid"]
    walls += ["--proc", "/proc", "--tmpfs", "/mnt", "--clearenv", "--setenv", "PATH", os.environ["PATH"]]
    walls += ["--tmpfs", "/tmp", "--setenv", "HOME", "/tmp"]
    for needed in (IMAGE.parent, Path(os.environ["STANDIN_PYTHON"]).parents[1], Path(sys.base_prefix)):
        if needed.is_relative_to("/tmp"):
            walls += ["--ro-bind", str(needed), str(needed)]
    for name, value in environment.items():
        walls += ["--setenv", name, value]
    for mount in mounts:
        walls += ["--ro-bind" if "readonly" in mount else "--bind", mount["source"], mount["target"]]
    with log.open("wb") as out, listener:
        return subprocess.Popen(
            [*walls, os.environ["STANDIN_PYTHON"], "-S", str(IMAGE), str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=(listener.fileno(),),
        )


def remove(words: list[str]) -> None:
    name = words[-1]
    about = read(name)
    if about is None:
        fail(f"Error response from daemon: No such container: {name}")
        return
    with suppress(ProcessLookupError):
        os.killpg(about["Pid"], signal.SIGKILL)
    for _ in range(500):
        if is_free(int(next(iter(about["NetworkSettings"]["Ports"].values()))[0]["HostPort"])):
            break
        time.sleep(0.01)
    (STATE / f"{name}.json").unlink(missing_ok=True)
    print(name)


def inspect(words: list[str]) -> None:
    about = read(words[-1])
    if about is None:
        print("[]")
        fail(f"Error: No such container: {words[-1]}")
    print(json.dumps([about]))


def listing(words: list[str]) -> None:
    label, _, value = words[words.index("--filter") + 1].removeprefix("label=").partition("=")
    for file in sorted(STATE.glob("*.json")):
        about = read(file.stem)
        if about is not None and about["Config"]["Labels"].get(label) == value:
            print(about["Name"].removeprefix("/"))


def read(name: str) -> dict | None:
    try:
        about = json.loads((STATE / f"{name}.json").read_text())
    except FileNotFoundError:
        return None
    about["State"]["Running"] = is_running(about["Pid"])
    return about


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def listen(port: int = 0) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), backlog=100)


def free_port() -> int:
    """Return a port that is free just now."""
    with listen() as found:
        return found.getsockname()[1]


def is_free(port: int) -> bool:
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", *words]:
            run(words)
        case ["rm", *words]:
            remove(words)
        case ["container", "inspect", *words]:
            inspect(words)
        case ["ps", *words]:
            listing(words)
        case other:
            fail(f"docker: unknown command: {other}", 125)
