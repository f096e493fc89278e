"""Catalogues: places that the operator names, from which skills can be searched and installed.

A catalogue is a folder, a git repository or an index at `/.well-known/agent-skills/index.json` (Agent Skills
Discovery 0.2). Nothing that is not named is fetched, and nothing that is fetched is executed.
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urljoin, urlsplit

from typing_extensions import override

from deerflow.addresses import Network
from deerflow.config import CatalogueSettings, LoadedSettings
from deerflow.config.secrets import masked_address
from deerflow.errors import ConflictError, DeerFlowError, InvalidInputError, NotFoundError
from deerflow.guarded_http import allowed_networks, fetch
from deerflow.retrieval import rank_in_thread
from deerflow.skills.archive import MAX_ARCHIVE_BYTES, SUFFIX, read_member, unpack
from deerflow.skills.git_tree import GitFile, GitTree, opened_tree
from deerflow.skills.package_files import (
    LITTER,
    MAX_FILE_BYTES,
    PackagePaths,
    PackageWriter,
    copy_package,
    is_litter,
)
from deerflow.skills.read import MAX_FILE_BYTES as MAX_SKILL_BYTES
from deerflow.skills.read import read_skill
from deerflow.skills.skill import SKILL_FILE, Skill, package_digest

INDEX_PATH = "/.well-known/agent-skills/index.json"
INDEX_SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
MAX_ENTRIES = 1000
MAX_DEPTH = 6
MAX_FOLDERS = 10_000
MAX_INDEX_BYTES = 1024 * 1024
FETCH_SECONDS = 30.0
CACHE_SECONDS = 300.0
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A skill in a catalogue."""

    name: str
    description: str
    catalogue: str
    """Location of the catalogue, without secrets."""
    digest: str
    """Changes with the skill's contents."""
    license: str | None = None
    version: str | None = None
    source: str = field(default="", repr=False)
    """Where it is in the catalogue: a path or an address."""
    kind: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class CatalogueProblem:
    """Why a catalogue, or an entry of it, cannot be used."""

    catalogue: str
    reason: str


@dataclass(frozen=True, slots=True)
class CatalogueListing:
    """What was found in catalogues."""

    entries: tuple[CatalogueEntry, ...] = ()
    problems: tuple[CatalogueProblem, ...] = ()


class Catalogue(ABC):
    """One named place with skills."""

    def __init__(self, location: str) -> None:
        self.location = location
        """For people: without secrets."""

    @abstractmethod
    async def listing(self) -> CatalogueListing:
        """List the skills; raise `DeerFlowError` if the catalogue cannot be read."""

    @abstractmethod
    async def fetch(self, entry: CatalogueEntry, target: Path) -> None:
        """Write the package of an entry to a new folder."""

    def _entry(self, skill: Skill, digest: str, source: str, kind: str = "") -> CatalogueEntry:
        return CatalogueEntry(
            name=skill.name,
            description=skill.description,
            catalogue=self.location,
            digest=digest,
            license=skill.license,
            version=skill.version,
            source=source,
            kind=kind,
        )

    def _problem(self, where: object, reason: object) -> CatalogueProblem:
        return CatalogueProblem(self.location, f"{where}: {reason}")


class Catalogues:
    """The catalogues that the operator names."""

    def __init__(
        self,
        settings: Sequence[CatalogueSettings],
        *,
        base: Path,
        allowed: Sequence[Network] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: `base` is where relative folders start; `allowed` are networks that are not public."""
        self._catalogues = [_catalogue(each, base, allowed) for each in settings]
        self._configured = [masked_address(each.location) for each in settings]
        self._clock = clock
        self._cached: dict[str, tuple[float, CatalogueListing]] = {}

    @property
    def locations(self) -> list[str]:
        """The locations, without secrets."""
        return [catalogue.location for catalogue in self._catalogues]

    async def search(self, query: str = "", *, limit: int = 20) -> CatalogueListing:
        """Return the skills that match best, or all by name without a query; a listing counts for minutes."""
        listings = await asyncio.gather(*(self._listing(each) for each in self._catalogues))
        entries = sorted(
            (entry for listing in listings for entry in listing.entries),
            key=lambda entry: (entry.name, entry.catalogue),
        )
        problems = tuple(problem for listing in listings for problem in listing.problems)
        if query.strip():
            texts = [f"{entry.name} {entry.name} {entry.description}" for entry in entries]
            entries = [entries[hit.index] for hit in await rank_in_thread(query, texts, limit=limit)]
        return CatalogueListing(tuple(entries[:limit]), problems)

    async def fetch(
        self, name: str, target: Path, *, catalogue: str | None = None, digest: str | None = None
    ) -> CatalogueEntry:
        """Write the package of a skill to a new folder.

        Args:
            catalogue: Its location, as listed or as in the settings; needed where several have the skill.
            digest: The digest that the caller has seen; another one raises `ConflictError`.
        """
        names = zip(self._catalogues, self._configured, strict=True)
        chosen = [each for each, configured in names if catalogue in (None, each.location, configured)]
        if catalogue is not None and not chosen:
            raise NotFoundError(
                "catalogue",
                catalogue[:200],
                known=self.locations,
                advice="name it in skills.catalogues of config.yaml",
            )
        listings = await asyncio.gather(*(self._listing(each, is_fresh=True) for each in chosen))
        found = [
            (each, entry)
            for each, listing in zip(chosen, listings, strict=True)
            for entry in listing.entries
            if entry.name == name
        ]
        if not found:
            problems = [problem.reason for listing in listings for problem in listing.problems]
            problems = problems if chosen else ["skills.catalogues of config.yaml names no catalogue"]
            advice = "; ".join([*problems[:3], "to install a file or folder, write its path"])
            raise NotFoundError("skill of a catalogue", name[:80], advice=advice)
        if len(found) > 1:
            known = ", ".join(each.location for each, _ in found)
            raise ConflictError(f"several catalogues have a skill '{name}'; choose one: {known}")
        source, entry = found[0]
        if digest is not None and digest != entry.digest:
            raise ConflictError(f"'{name}' in {entry.catalogue} has changed: it is {entry.digest} now")
        await source.fetch(entry, target)
        return entry

    async def _listing(self, catalogue: Catalogue, *, is_fresh: bool = False) -> CatalogueListing:
        known = self._cached.get(catalogue.location)
        if known is not None and not is_fresh and self._clock() - known[0] < CACHE_SECONDS:
            return known[1]
        try:
            listing = await catalogue.listing()
        except DeerFlowError as error:  # not kept: the next search tries again
            return CatalogueListing((), (CatalogueProblem(catalogue.location, str(error)),))
        self._cached[catalogue.location] = (self._clock(), listing)
        return listing


def catalogues_of(loaded: LoadedSettings) -> Catalogues:
    """Return the catalogues that the settings name."""
    settings = loaded.settings
    allowed = allowed_networks(settings.runs.webhook_allow_cidrs)
    return Catalogues(settings.skills.catalogues, base=loaded.project_root, allowed=allowed)


def _catalogue(settings: CatalogueSettings, base: Path, allowed: Sequence[Network]) -> Catalogue:
    location = settings.location
    match settings.kind:
        case "git":
            return GitCatalogue(location.removeprefix("git+"), ref=settings.ref, allowed=allowed)
        case "index":
            return IndexCatalogue(location, hosts=settings.hosts, allowed=allowed)
        case _:
            return FolderCatalogue(base / Path(location).expanduser())


class FolderCatalogue(Catalogue):
    """A folder with skills, as folders or as `.skill` archives."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self._folder = folder

    @override
    async def listing(self) -> CatalogueListing:
        return await asyncio.to_thread(self._listed)

    @override
    async def fetch(self, entry: CatalogueEntry, target: Path) -> None:
        await asyncio.to_thread(self._copy, entry, target)

    def _listed(self) -> CatalogueListing:
        if not self._folder.is_dir():
            raise InvalidInputError(f"the folder {self._folder} does not exist")
        entries: list[CatalogueEntry] = []
        problems: list[CatalogueProblem] = []
        for path in _packages_below(self._folder):
            if len(entries) >= MAX_ENTRIES:
                problems.append(self._problem(self._folder, f"only {MAX_ENTRIES:,} skills are listed"))
                break
            source = path.relative_to(self._folder).as_posix()
            try:
                entries.append(self._read(path, source))
            except (OSError, ValueError, DeerFlowError) as error:
                problems.append(self._problem(source, error))
        return CatalogueListing(tuple(entries), tuple(problems))

    def _read(self, path: Path, source: str) -> CatalogueEntry:
        if path.suffix != SUFFIX:
            skill = read_skill(path / SKILL_FILE, category="public", path=source)
            return self._entry(skill, f"sha256:{package_digest(path)}", source)
        with path.open("rb") as file, tempfile.TemporaryDirectory() as draft:
            text = Path(draft, SKILL_FILE)
            text.write_bytes(read_member(file, SKILL_FILE))
            skill = read_skill(text, category="public", path=source)
            file.seek(0)
            return self._entry(skill, f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}", source)

    def _copy(self, entry: CatalogueEntry, target: Path) -> None:
        path = self._folder / entry.source
        if path.suffix != SUFFIX:
            copy_package(path, target)
            return
        with path.open("rb") as file:
            unpack(file, target)


class GitCatalogue(Catalogue):
    """A git repository with skills in any of its folders."""

    def __init__(self, url: str, *, ref: str | None, allowed: Sequence[Network]) -> None:
        super().__init__(masked_address(url) + (f"#{ref}" if ref else ""))
        self._url = url
        self._ref = ref
        self._allowed = allowed

    @override
    async def listing(self) -> CatalogueListing:
        entries: list[CatalogueEntry] = []
        problems: list[CatalogueProblem] = []
        async with opened_tree(self._url, ref=self._ref, allowed=self._allowed) as tree:
            for file in await asyncio.to_thread(_skill_texts, tree):
                try:
                    entries.append(await self._read(tree, file))
                except (ValueError, DeerFlowError) as error:
                    problems.append(self._problem(file.path, error))
        return CatalogueListing(tuple(entries), tuple(problems))

    @override
    async def fetch(self, entry: CatalogueEntry, target: Path) -> None:
        folder = PurePosixPath(entry.source)
        async with opened_tree(self._url, ref=self._ref, allowed=self._allowed) as tree:
            if await asyncio.to_thread(_tree_digest, tree, folder) != entry.digest:
                raise ConflictError(f"'{entry.name}' in {self.location} has just changed; try again")
            writer = PackageWriter(target)
            for path, file in (await asyncio.to_thread(_files_below, tree, folder)).items():
                content = await tree.read(file, max_bytes=MAX_FILE_BYTES)
                is_executable = file.mode == "100755"
                await asyncio.to_thread(writer.write, path, [content], is_executable=is_executable)

    async def _read(self, tree: GitTree, file: GitFile) -> CatalogueEntry:
        content = await tree.read(file, max_bytes=MAX_SKILL_BYTES)
        skill = await asyncio.to_thread(_described, content, file.path.parent.name)
        digest = await asyncio.to_thread(_tree_digest, tree, file.path.parent)
        return self._entry(skill, digest, file.path.parent.as_posix())


def _skill_texts(tree: GitTree) -> list[GitFile]:
    """Return the `SKILL.md` of every package in a repository."""
    texts = [file for file in tree.files if file.path.name == SKILL_FILE and file.is_regular]
    folders = _outermost(file.path.parent for file in texts)
    return [file for file in texts if file.path.parent in folders][:MAX_ENTRIES]


def _files_below(tree: GitTree, folder: PurePosixPath) -> dict[PurePosixPath, GitFile]:
    """Return the files of the package in a folder; raise for links, submodules and unsafe names."""
    paths, found = PackagePaths(), {}
    for file in tree.files:
        if file.path.is_relative_to(folder) and not is_litter(file.path.relative_to(folder)):
            path = paths.add(file.path.relative_to(folder).as_posix())
            if not file.is_regular:
                raise InvalidInputError(f"'{path}' is a link or submodule; only files are taken")
            found[path] = file
    return found


def _tree_digest(tree: GitTree, folder: PurePosixPath) -> str:
    """Return git's id of a folder's contents; for the root, one of all its files."""
    if folder.parts:
        return f"git:{tree.folders.get(folder, '')}"
    listed = "\n".join(f"{file.mode} {file.object_id} {file.path}" for file in tree.files)
    return f"git:{hashlib.sha256(listed.encode()).hexdigest()}"


class IndexCatalogue(Catalogue):
    """A site that publishes its skills in an index with digests."""

    def __init__(self, url: str, *, hosts: Sequence[str], allowed: Sequence[Network]) -> None:
        url = url if urlsplit(url).path.endswith(".json") else f"{url.rstrip('/')}{INDEX_PATH}"
        super().__init__(masked_address(url))
        self._url = url
        self._hosts = frozenset({urlsplit(url).netloc.rpartition("@")[2].lower(), *map(str.lower, hosts)})
        self._allowed = allowed

    @override
    async def listing(self) -> CatalogueListing:
        data = await fetch(self._url, allowed=self._allowed, max_bytes=MAX_INDEX_BYTES, seconds=FETCH_SECONDS)
        return await asyncio.to_thread(self._parsed, data)

    @override
    async def fetch(self, entry: CatalogueEntry, target: Path) -> None:
        url = urljoin(self._url, entry.source)
        self._check_host(url)
        most = MAX_ARCHIVE_BYTES if entry.kind == "archive" else MAX_SKILL_BYTES
        data = await fetch(url, allowed=self._allowed, max_bytes=most, seconds=FETCH_SECONDS)
        await asyncio.to_thread(self._write, entry, data, target)

    def _check_host(self, url: str) -> None:
        parts, own = urlsplit(url), urlsplit(self._url)
        host, shown = parts.netloc.rpartition("@")[2].lower(), masked_address(url)[:200]
        if parts.scheme != own.scheme and parts.scheme != "https":
            raise InvalidInputError(f"'{shown}' does not begin with {own.scheme}://, as its index does")
        if host not in self._hosts:
            raise InvalidInputError(
                f"'{shown}' is at another host than its index; allow it with 'hosts' in skills.catalogues"
            )

    def _write(self, entry: CatalogueEntry, data: bytes, target: Path) -> None:
        found = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if found != entry.digest:
            raise InvalidInputError(
                f"'{entry.name}' of {self.location} is {found}, but its index says {entry.digest}"
            )
        if entry.kind == "skill-md":
            PackageWriter(target).write(PurePosixPath(SKILL_FILE), [data], is_executable=False)
            return
        with tempfile.TemporaryFile() as file:
            file.write(data)
            unpack(file, target)

    def _parsed(self, data: bytes) -> CatalogueListing:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"{self.location} is no JSON: {error}") from error
        found = document.get("skills") if isinstance(document, dict) else None
        if not isinstance(found, list):
            raise InvalidInputError(f"{self.location} has no list 'skills'")
        entries: list[CatalogueEntry] = []
        problems: list[CatalogueProblem] = []
        for number, each in enumerate(found[:MAX_ENTRIES]):
            try:
                entries.append(self._checked(each))
            except ValueError as error:
                problems.append(self._problem(f"skills[{number}]", error))
        if len(found) > MAX_ENTRIES:
            problems.append(self._problem("skills", f"only {MAX_ENTRIES:,} of {len(found):,} are listed"))
        return CatalogueListing(tuple(entries), tuple(problems))

    def _checked(self, entry: Any) -> CatalogueEntry:
        texts = entry if isinstance(entry, dict) else {}
        name, description, kind, url, digest = (
            str(texts.get(key) or "") for key in ("name", "description", "type", "url", "digest")
        )
        if kind not in ("skill-md", "archive"):
            raise ValueError(f"'type' is '{kind[:40]}'; known: skill-md, archive")
        if not _DIGEST.fullmatch(digest):
            raise ValueError("'digest' is no 'sha256:' with 64 hexadecimal digits, so it cannot be checked")
        if not url:
            raise ValueError("'url' is missing")
        matter = f"---\nname: {json.dumps(name)}\ndescription: {json.dumps(description)}\n---\n"
        skill = _described(matter.encode(), "")
        return self._entry(skill, digest, url, kind)


def _described(content: bytes, folder: str) -> Skill:
    """Return the skill that the text of a `SKILL.md` describes; raise `ValueError` if it is unusable."""
    draft = tempfile.mkdtemp()
    try:
        file = Path(draft, folder or "skill", SKILL_FILE)
        file.parent.mkdir()
        file.write_bytes(content)
        return read_skill(file, category="public", path=SKILL_FILE)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _packages_below(root: Path) -> Iterable[Path]:
    """Yield the folders with a `SKILL.md`, and `.skill` archives; what is in a package is not listed."""
    looked_at = 0
    for place, folders, files in os.walk(root):
        looked_at += 1
        here = Path(place)
        depth = len(here.relative_to(root).parts)
        if SKILL_FILE in files and not (here / SKILL_FILE).is_symlink():
            folders.clear()
            yield here
            continue
        is_deep = depth >= MAX_DEPTH or looked_at >= MAX_FOLDERS
        folders[:] = [] if is_deep else sorted(set(folders) - LITTER)
        yield from (here / name for name in sorted(files) if name.endswith(SUFFIX))


def _outermost(folders: Iterable[PurePosixPath]) -> frozenset[PurePosixPath]:
    """Return the folders that are in no other one of them, and not too deep."""
    known = {folder for folder in folders if len(folder.parts) <= MAX_DEPTH}
    return frozenset(folder for folder in known if not known.intersection(folder.parents))
