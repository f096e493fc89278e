"""Reads the files of a git repository's newest commit with the `git` command, without checking them out.

The clone is shallow and bare, in a temporary folder. Nothing in it is executed: no hooks, no submodules, no
filters, no credential helpers; only the protocol of the named URL is allowed, and redirects are not followed.
"""

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import SplitResult, urlsplit

from deerflow.addresses import Network
from deerflow.config.secrets import masked_address
from deerflow.errors import InvalidInputError, ProgramError, TooLargeError
from deerflow.guarded_http import check_destination
from deerflow.programs import Program, running_program

MAX_REPOSITORY_BYTES = 100 * 1024 * 1024
MAX_LISTING_BYTES = 8 * 1024 * 1024
TIMEOUT_SECONDS = 60.0
SCHEMES = ("https", "http", "file")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,200}")
_LIMITED = 'ulimit -f "$1" && shift && exec "$@"'
"""`ulimit` bounds the largest file in blocks of 512 bytes: git writes all objects into one."""


@dataclass(frozen=True, slots=True)
class GitFile:
    """A file of the commit."""

    path: PurePosixPath
    mode: str
    """`100644`, `100755` for programs, `120000` for links, `160000` for submodules."""
    object_id: str
    size: int

    @property
    def is_regular(self) -> bool:
        return self.mode in ("100644", "100755", "100664")


class GitTree:
    """The files and folders of one commit, read from a bare clone."""

    def __init__(
        self, reader: Program, files: Sequence[GitFile], folders: Mapping[PurePosixPath, str]
    ) -> None:
        self._reader = reader
        self.files = files
        self.folders = folders
        """Ids of the folders' contents by path."""

    async def read(self, file: GitFile, *, max_bytes: int) -> bytes:
        """Return the contents of a file."""
        if file.size > max_bytes:
            raise TooLargeError(f"'{file.path}' has more than {max_bytes:,} bytes")
        self._reader.stdin.write(f"{file.object_id}\n".encode())
        await self._reader.stdin.drain()
        header = (await self._reader.stdout.readline()).decode().split()
        if len(header) != 3 or not header[2].isdigit() or int(header[2]) != file.size:
            raise InvalidInputError(f"'{file.path}' cannot be read from the repository")
        content = await self._reader.stdout.readexactly(file.size + 1)
        return content[:-1]


@asynccontextmanager
async def opened_tree(url: str, *, ref: str | None, allowed: Sequence[Network]) -> AsyncIterator[GitTree]:
    """Clone a repository for the length of a block, at most `TIMEOUT_SECONDS`.

    Args:
        ref: A branch or tag; None: the default branch.
        allowed: Networks that may be used although they are not public.
    """
    shown = masked_address(url)[:200]
    if ref is not None and not _REF.fullmatch(ref):
        raise InvalidInputError(f"'{ref[:80]}' is no name of a branch or tag of {shown}")
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            with tempfile.TemporaryDirectory(prefix="deerflow-git-", ignore_cleanup_errors=True) as name:
                folder = Path(name)
                address = await _configure(folder, url, allowed)
                chosen = [] if ref is None else ["--branch", ref]
                options = ["--quiet", "--bare", "--depth=1", "--single-branch", "--no-tags", "--template="]
                await _git(folder, address, "clone", *options, *chosen, "--", address.geturl(), "repository")
                listing = await _git(folder, address, *_IN_CLONE, "ls-tree", "-r", "-t", "-z", "-l", "HEAD")
                files, folders = await asyncio.to_thread(_parsed, listing)
                reading = _command(*_IN_CLONE, "cat-file", "--batch")
                async with running_program(reading, env=_environment(folder, address), cwd=folder) as reader:
                    yield GitTree(reader, files, folders)
    except TimeoutError as error:
        raise InvalidInputError(f"{shown} was not read within {TIMEOUT_SECONDS:g} s") from error
    except (ProgramError, OSError, EOFError) as error:
        raise InvalidInputError(f"{shown} cannot be read: {error}") from error


_IN_CLONE = ("--git-dir=repository",)


async def _configure(folder: Path, url: str, allowed: Sequence[Network]) -> SplitResult:
    """Write git's only configuration file; return the address without the login in it."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        shown = masked_address(url)[:200]
        raise InvalidInputError(f"'{shown}' is no git URL; write it with https://, http:// or file://")
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    lines = [
        "[core]\n hooksPath = /dev/null\n symlinks = false\n fsmonitor = false\n",
        "[credential]\n helper =\n",
        "[http]\n followRedirects = false\n proxy =\n lowSpeedLimit = 1000\n lowSpeedTime = 20\n",
        "[submodule]\n recurse = false\n",
        "[safe]\n directory = *\n",  # the operator named the folder, whoever owns it
    ]
    if parts.scheme != "file":
        addresses = await check_destination(url, allowed)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        hosts = ",".join(f"[{each}]" if ":" in each else each for each in addresses)
        lines.append(f"[http]\n curloptResolve = {parts.hostname}:{port}:{hosts}\n")  # no second look-up
    if plain != parts:
        root = f"{parts.scheme}://{plain.netloc}/"
        login = f"{parts.scheme}://{parts.netloc}/"
        # In this file, since other users can read the arguments of programs.
        lines.append(f'[url "{_quoted(login)}"]\n insteadOf = "{_quoted(root)}"\n')
    config = folder / "gitconfig"
    config.touch(mode=0o600)
    config.write_text("".join(lines))
    return plain


def _quoted(text: str) -> str:
    if not text.isprintable():
        raise InvalidInputError("the git URL has characters that cannot be printed")
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _environment(folder: Path, address: SplitResult) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": address.scheme,
        "GIT_ASKPASS": "true",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _command(*words: str) -> list[str]:
    return ["sh", "-c", _LIMITED, "sh", str(MAX_REPOSITORY_BYTES // 512), "git", *words]


async def _git(folder: Path, address: SplitResult, *words: str) -> bytes:
    """Run a git command and return its output."""
    async with running_program(_command(*words), env=_environment(folder, address), cwd=folder) as program:
        output = bytearray()
        while block := await program.stdout.read(1 << 16):
            output += block
            if len(output) > MAX_LISTING_BYTES:
                raise TooLargeError(f"the repository's list of files has over {MAX_LISTING_BYTES:,} bytes")
        code = await program.exit_code()
        if code != 0:
            raise ProgramError(_failure(program.last_words, code))
    return bytes(output)


def _failure(said: str, code: int | None) -> str:
    if "index-pack" in said or "File too large" in said:  # it was killed when its file exceeded the limit
        return f"it has more than {MAX_REPOSITORY_BYTES:,} bytes, or is damaged"
    if code == 127:
        return "the git command is not installed"
    fatal = next((line for line in said.splitlines() if line.startswith("fatal: ")), "")
    return masked_address(fatal.removeprefix("fatal: "))[:300] or f"git ended with exit code {code}"


def _parsed(listing: bytes) -> tuple[list[GitFile], dict[PurePosixPath, str]]:
    files: list[GitFile] = []
    folders: dict[PurePosixPath, str] = {}
    for entry in listing.split(b"\0"):
        about, _, name = entry.partition(b"\t")
        with suppress(UnicodeDecodeError, ValueError):  # names in other encodings are in no package
            mode, kind, object_id, size = about.decode().split()
            path = PurePosixPath(name.decode())
            if kind == "tree":
                folders[path] = object_id
            else:
                files.append(GitFile(path, mode, object_id, int(size) if size.isdigit() else 0))
    return files, folders
