"""Writes custom skills atomically and keeps their versions: history, differences, rollback, drafts.

Each change is staged next to the skills, scanned, stored as a version, and exchanged with the old folder in
one system call. A killed process leaves the old or the new folder, whole; the record of an unfinished change
is completed or dropped by the next access. File contents are stored once per skill, by their digest.
"""

import ctypes
import difflib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from deerflow.config import LoadedSettings, Paths
from deerflow.domain import DEFAULT_USER
from deerflow.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SkillBlockedError,
    TooLargeError,
)
from deerflow.skills.package_files import (
    MAX_FILE_BYTES,
    MAX_TOTAL_BYTES,
    PackagePaths,
    package_files,
)
from deerflow.skills.read import read_skill
from deerflow.skills.scan import ScanFinding, blocking, scan
from deerflow.skills.skill import SKILL_FILE

Action = Literal["found", "create", "install", "write", "delete", "rollback", "promote"]
MAX_VERSIONS = 100
"""Older versions are removed."""
_STAGING = ".staging"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True)
class FileContent:
    """One file of a skill."""

    content: bytes
    is_executable: bool = False


Package = Mapping[str, FileContent]
"""The files of a skill by their paths in its folder."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Where the content of a version's file is stored."""

    sha256: str
    size: int
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a skill, or a draft of the next one."""

    number: int
    """Counts from 1; 0 for a draft."""
    action: Action
    digest: str
    """Digest of the whole package; empty after a deletion."""
    time: str
    author: str
    reason: str
    run_id: str | None = None
    base: str = ""
    """Digest of the package that was changed; empty for a new skill."""
    findings: tuple[ScanFinding, ...] = ()
    checks: Mapping[str, Any] = field(default_factory=dict)
    """Results of the review by a model and of the skill's own cases."""
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    """For an installed package: where it is from, and the digests of its files there."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Version":
        data = json.loads(text)
        files = {path: StoredFile(**stored) for path, stored in data.pop("files").items()}
        findings = tuple(ScanFinding(**finding) for finding in data.pop("findings"))
        return cls(**data, files=files, findings=findings)


@dataclass(frozen=True, slots=True)
class SkillChange:
    """Who changes a skill, why, and what was checked before."""

    author: str
    reason: str = ""
    run_id: str | None = None
    action: Action = "write"
    checks: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)


class CustomSkills:
    """The custom skills of one user; methods block and belong into a thread.

    Args:
        root: The folder that contains one folder per skill.
        history: The folder of versions and drafts, which no sandbox sees.
        is_scanning: Whether packages are scanned (`skill_scan.enabled`).
    """

    def __init__(self, root: Path, *, history: Path, is_scanning: bool = True) -> None:
        self.root = root
        self._history = history
        self._is_scanning = is_scanning

    def names(self) -> list[str]:
        """Return the names of the skills in the folder."""
        if not self.root.is_dir():
            return []
        return sorted(entry.name for entry in self.root.iterdir() if (entry / SKILL_FILE).is_file())

    def folder(self, name: str) -> Path:
        """Return the folder of a skill; raise `NotFoundError` if there is no such skill."""
        target = self._target(name)
        if not (target / SKILL_FILE).is_file():
            raise NotFoundError("custom skill", name[:80], known=self.names())
        return target

    def read(self, name: str) -> dict[str, FileContent]:
        """Return the files of the skill that is in use."""
        return read_package(self.folder(name))

    def current(self, name: str) -> Version | None:
        """Return the version in use; None if it was put into the folder by other means."""
        versions = self.history(name)
        target = self._target(name)
        if not versions or not target.is_dir():
            return None
        return versions[-1] if versions[-1].digest == package_digest_of(read_package(target)) else None

    def history(self, name: str) -> list[Version]:
        """Return all versions, the oldest first."""
        folder = self._records(name)
        if any(folder.glob("*.pending")):
            with self._locked(name):
                self._recover(name)
        return [
            Version.from_json(file.read_text())
            for file in sorted(folder.glob("*.json"))
            if file.stem.isdigit()
        ]

    def history_with_edits(self, name: str) -> list[Version]:
        """Return all versions, the oldest first; files that were edited in the folder become the last one."""
        target = self._target(name)
        with suppress(
            InvalidInputError, TooLargeError
        ):  # files that no version may have: only what is stored
            if (target / SKILL_FILE).is_file() and self.current(name) is None:
                with self._locked(name):
                    self._recover(name)
                    self._recorded(name)
        return self.history(name)

    def files_of(self, name: str, version: Version) -> dict[str, FileContent]:
        """Return the files of a version or draft."""
        objects = self._records(name) / "objects"
        return {
            path: FileContent((objects / stored.sha256).read_bytes(), stored.is_executable)
            for path, stored in version.files.items()
        }

    def write(
        self, name: str, source: Package | Path, change: SkillChange, *, expected: str | None = None
    ) -> Version:
        """Create or replace a skill with files, or with the contents of a folder; a draft of it is dropped.

        Raise `SkillBlockedError` if a rule of the scan blocks it; nothing changes then.

        Args:
            expected: Digest of the package to replace, empty if there must be none; for any other raise
                `ConflictError`.
        """
        package = read_package(source) if isinstance(source, Path) else dict(source)
        _check_package(package)
        with self._locked(name):
            self._recover(name)
            if expected is not None and expected != self._digest_in_use(name):
                raise ConflictError(f"the skill '{name}' was changed at the same time; try again")
            return self._write(name, package, change)

    def check(self, name: str, folder: Path) -> tuple[ScanFinding, ...]:
        """Return what the scan finds in a folder; raise `SkillBlockedError` if a rule blocks it."""
        findings = scan(folder) if self._is_scanning else []
        if blocked := blocking(findings):
            raise SkillBlockedError(name, [each.rule_id for each in blocked], [str(each) for each in blocked])
        return tuple(findings)

    def delete(self, name: str, change: SkillChange) -> Version:
        """Delete a skill; its versions stay, and `rollback` restores one."""
        with self._locked(name):
            self._recover(name)
            target = self.folder(name)
            last = self._recorded(name)
            version = _version(
                last.number + 1 if last else 1, replace(change, action="delete"), {}, base=_digest(last)
            )
            pending = self._save(name, version, {})
            old = self.root / _STAGING / name
            old.parent.mkdir(parents=True, exist_ok=True)
            target.rename(old)
            self._finish(name, pending)
            return version

    def rollback(self, name: str, number: int, change: SkillChange) -> Version:
        """Write the files of an earlier version again, as a new version."""
        versions = {version.number: version for version in self.history(name)}
        version = versions.get(number)
        if version is None:
            raise NotFoundError(f"version of the skill '{name[:80]}'", str(number), known=map(str, versions))
        if not version.files:
            raise InvalidInputError(f"version {number} of the skill '{name}' is its deletion; choose another")
        reason = change.reason or f"rollback to version {number}"
        return self.write(
            name, self.files_of(name, version), replace(change, action="rollback", reason=reason)
        )

    def number_before(self, name: str, index: int) -> int:
        """Return the version before the change that `index` names in the history; -1 is the last change."""
        versions = self.history_with_edits(name)
        if not versions:
            raise NotFoundError("custom skill", name[:80], known=self.names())
        if not -len(versions) <= index < len(versions):
            raise InvalidInputError(f"history_index is {index}; the history has {len(versions)} entries")
        before = versions[: index % len(versions)]
        if not before or not before[-1].files:
            raise InvalidInputError(
                f"history_index {index} created the skill '{name}'; nothing was before it"
            )
        return before[-1].number

    def diff(self, name: str, a: int, b: int) -> str:
        """Return the differences between two versions; 0 is the draft."""
        old, new = (self.files_of(name, self._numbered(name, number)) for number in (a, b))
        return diff_packages(old, new)

    def draft_diff(self, name: str) -> str:
        """Return how the draft of a skill differs from the version in use."""
        in_use, draft = self.read(name), self.read_draft(name)
        if draft is None:
            raise NotFoundError("draft of the skill", name[:80])
        return diff_packages(in_use, self.files_of(name, draft))

    def draft(self, name: str, source: Package, change: SkillChange) -> Version:
        """Store files as the draft of a skill's next version; the version in use stays."""
        package = dict(source)
        _check_package(package)
        with self._locked(name):
            self._recover(name)
            base = package_digest_of(self.read(name))
            with self._staged(name, package) as (_, findings):
                draft = _version(0, change, package, base=base, findings=findings)
                self._store_contents(name, package)
                _write_synced(self._records(name) / "draft.json", draft.to_json())
            return draft

    def note_draft(self, name: str, digest: str, checks: Mapping[str, Any]) -> bool:
        """Add results to a draft; return False if it is not the draft with this digest any more."""
        with self._locked(name):
            draft = self.read_draft(name)
            if draft is None or draft.digest != digest:
                return False
            noted = replace(draft, checks={**draft.checks, **checks})
            _write_synced(self._records(name) / "draft.json", noted.to_json())
            return True

    def read_draft(self, name: str) -> Version | None:
        """Return the draft of a skill's next version; None if there is none."""
        file = self._records(name) / "draft.json"
        try:
            return Version.from_json(file.read_text())
        except FileNotFoundError:
            return None

    def drafts(self) -> list[tuple[str, Version]]:
        """Return all drafts with the names of their skills."""
        names = sorted(file.parent.name for file in self._history.glob("*/draft.json"))
        return [(name, draft) for name in names if (draft := self.read_draft(name)) is not None]

    def promote(self, name: str, change: SkillChange, *, digest: str | None = None) -> Version:
        """Put a draft into use; raise `ConflictError` if the skill changed after the draft was made.

        Args:
            digest: The draft that is meant; None: whichever there is.
        """
        with self._locked(name):
            self._recover(name)
            draft = self.read_draft(name)
            if draft is None:
                raise NotFoundError("draft of the skill", name[:80])
            if digest is not None and digest != draft.digest:
                raise ConflictError(f"the draft of the skill '{name}' is another one now")
            if package_digest_of(self.read(name)) != draft.base:
                raise ConflictError(
                    f"the skill '{name}' changed after its draft was made; make the edit again"
                )
            checks = {**draft.checks, **change.checks}
            approved = replace(change, action="promote", run_id=draft.run_id, checks=checks)
            approved = replace(approved, reason=approved.reason or draft.reason)
            return self._write(name, self.files_of(name, draft), approved)

    def discard(self, name: str) -> None:
        """Remove a draft; the version in use stays."""
        with self._locked(name):
            if self.read_draft(name) is None:
                raise NotFoundError("draft of the skill", name[:80])
            (self._records(name) / "draft.json").unlink(missing_ok=True)

    def _digest_in_use(self, name: str) -> str:
        target = self._target(name)
        return package_digest_of(read_package(target)) if target.exists() else ""

    def _numbered(self, name: str, number: int) -> Version:
        draft = [found] if (found := self.read_draft(name)) is not None else []
        known = {version.number: version for version in (*draft, *self.history(name))}
        if number not in known:
            raise NotFoundError(f"version of the skill '{name[:80]}'", str(number), known=map(str, known))
        return known[number]

    def _write(self, name: str, package: Package, change: SkillChange) -> Version:
        last = self._recorded(name)
        with self._staged(name, package) as (staged, findings):
            number = last.number + 1 if last else 1
            change = (
                replace(change, action="create")
                if not self._target(name).exists() and change.action == "write"
                else change
            )
            version = _version(number, change, package, base=_digest(last), findings=findings)
            pending = self._save(name, version, package)
            _exchange(staged, self._target(name))
            self._finish(name, pending)
        (self._records(name) / "draft.json").unlink(missing_ok=True)
        self._prune(name)
        return version

    def _recorded(self, name: str) -> Version | None:
        """Return the last version; first records the files in use if they came by other means."""
        versions = self.history(name)
        last = versions[-1] if versions else None
        target = self._target(name)
        if not target.is_dir():
            return last
        package = read_package(target)
        if last is not None and last.digest == package_digest_of(package):
            return last
        change = SkillChange("disk", "found in the folder", action="found")
        found = _version(last.number + 1 if last else 1, change, package, base=_digest(last))
        self._finish(name, self._save(name, found, package), keep_staging=True)
        return found

    @contextmanager
    def _staged(self, name: str, package: Package) -> Iterator[tuple[Path, tuple[ScanFinding, ...]]]:
        """Write a package into the staging folder and check it; the folder is removed afterwards."""
        staged = self.root / _STAGING / name
        shutil.rmtree(staged, ignore_errors=True)
        try:
            write_package(staged, package)
            _check_skill(name, staged)
            yield staged, self.check(name, staged)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _save(self, name: str, version: Version, package: Package) -> Path:
        """Store a version as pending: it counts once the folder has been exchanged."""
        self._store_contents(name, package)
        pending = self._records(name) / f"{version.number:06d}.pending"
        _write_synced(pending, version.to_json())
        return pending

    def _store_contents(self, name: str, package: Package) -> None:
        objects = self._records(name) / "objects"
        objects.mkdir(parents=True, exist_ok=True)
        for each in package.values():
            file = objects / hashlib.sha256(each.content).hexdigest()
            if not file.exists():
                _write_synced(file, each.content)

    def _finish(self, name: str, pending: Path, *, keep_staging: bool = False) -> None:
        pending.rename(pending.with_suffix(".json"))
        _sync_folder(pending.parent)
        if not keep_staging:
            shutil.rmtree(self.root / _STAGING / name, ignore_errors=True)

    def _recover(self, name: str) -> None:
        """Complete or drop the record of a change whose process ended in between."""
        for leftover in (name, f"{name}.old"):  # what they held is stored with the versions
            shutil.rmtree(self.root / _STAGING / leftover, ignore_errors=True)
        for pending in self._records(name).glob("*.pending"):
            version, target = Version.from_json(pending.read_text()), self._target(name)
            if not target.exists() and version.base and version.files:  # between two renames
                write_package(self.root / _STAGING / name, self.files_of(name, version))
                (self.root / _STAGING / name).rename(target)
            if self._digest_in_use(name) == version.digest:
                self._finish(name, pending)
            else:
                pending.unlink()

    def _prune(self, name: str) -> None:
        records = sorted(file for file in self._records(name).glob("*.json") if file.stem.isdigit())
        if len(records) <= MAX_VERSIONS:
            return
        for file in records[:-MAX_VERSIONS]:
            file.unlink()
        kept = {stored.sha256 for version in self.history(name) for stored in version.files.values()}
        for file in (self._records(name) / "objects").iterdir():
            if file.name not in kept:
                file.unlink()

    def _target(self, name: str) -> Path:
        return self.root / checked_name(name)

    def _records(self, name: str) -> Path:
        return self._history / checked_name(name)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Hold the lock of one skill against threads and processes; the system frees it if this one dies."""
        folder = self._records(name)
        folder.mkdir(parents=True, exist_ok=True)
        self.root.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def custom_skills_of(loaded: LoadedSettings, paths: Paths, user: str) -> CustomSkills:
    """Return the custom skills of a user, with their history in the user's folder."""
    own = paths.skills(user)
    root = loaded.skills_root / "custom" if user == DEFAULT_USER else own
    return CustomSkills(root, history=own.parent / "history", is_scanning=loaded.settings.skill_scan.enabled)


def checked_name(name: str) -> str:
    """Return a skill's name that is safe as a folder's; raise `InvalidInputError` otherwise."""
    is_folder = name.isprintable() and not name.startswith((".", " ", "-")) and not name.endswith((".", " "))
    if not is_folder or not 0 < len(name.encode()) <= 255 or any(char in "/\\:" for char in name):
        raise InvalidInputError(
            f"the skill's name {name[:80]!r} cannot be used: 1 to 64 letters, digits and hyphens"
        )
    return name


def read_package(folder: Path) -> dict[str, FileContent]:
    """Return the files of a folder; raise for links, devices and more than the accepted size."""
    found = package_files(folder)
    _check_sizes(file.size for file in found)
    return {
        file.path.as_posix(): FileContent((folder / file.path).read_bytes(), file.is_executable)
        for file in found
    }


def write_package(folder: Path, package: Package) -> None:
    """Write the files of a skill into a new folder, and make them durable."""
    folder.mkdir(parents=True)
    for path, each in package.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as out:
            out.write(each.content)
            out.flush()
            os.fsync(out.fileno())
        file.chmod(0o755 if each.is_executable else 0o644)
    for here, _, _ in os.walk(folder):
        _sync_folder(Path(here))


def package_digest_of(package: Package) -> str:
    """Return the digest of a package, the same as `package_digest` of its folder."""
    digest = hashlib.sha256()
    for path in sorted(package):
        kind = b"x" if package[path].is_executable else b"-"
        digest.update(path.encode() + b"\0" + kind + hashlib.sha256(package[path].content).digest())
    return digest.hexdigest()


def stored_files(package: Package) -> dict[str, StoredFile]:
    """Return the digests of a package's files by path."""
    return {
        path: StoredFile(hashlib.sha256(each.content).hexdigest(), len(each.content), each.is_executable)
        for path, each in package.items()
    }


def diff_packages(old: Package, new: Package) -> str:
    """Return the differences of two packages as a unified diff; binary files are only named."""
    lines: list[str] = []
    for path in sorted({*old, *new}):
        a, b = old.get(path), new.get(path)
        if a == b:
            continue
        before, after = (_lines(each) for each in (a, b))
        if before is None or after is None:
            lines.append(f"Binary file {path} differs\n")
        else:
            lines += difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _lines(file: FileContent | None) -> list[str] | None:
    if file is None:
        return []
    try:
        return file.content.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None


def _check_package(package: Package) -> None:
    paths = PackagePaths()
    for path in package:
        if paths.add(path).as_posix() != path:
            raise InvalidInputError(f"the package has a file {path[:200]!r}; write its path without extras")
    _check_sizes(len(each.content) for each in package.values())


def _check_sizes(sizes: Iterable[int]) -> None:
    total = 0
    for size in sizes:
        total += size
        if size > MAX_FILE_BYTES or total > MAX_TOTAL_BYTES:
            raise TooLargeError(
                f"a skill has at most {MAX_FILE_BYTES:,} bytes in a file and {MAX_TOTAL_BYTES:,} together"
            )


def _check_skill(name: str, folder: Path) -> None:
    try:
        skill = read_skill(folder / SKILL_FILE, category="custom", path=SKILL_FILE)
    except FileNotFoundError as error:
        raise InvalidInputError(f"the skill '{name}' has no {SKILL_FILE}") from error
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"the {SKILL_FILE} of '{name}' cannot be used: {error}") from error
    if skill.name != name:
        raise InvalidInputError(
            f"the {SKILL_FILE} of '{name}' has the name '{skill.name}'; they must be equal"
        )


def _version(
    number: int, change: SkillChange, package: Package, *, base: str, findings: Sequence[ScanFinding] = ()
) -> Version:
    return Version(
        number=number,
        action=change.action,
        digest=package_digest_of(package) if package else "",
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        author=change.author,
        reason=change.reason,
        run_id=change.run_id,
        base=base,
        findings=tuple(findings),
        checks=change.checks,
        origin=change.origin,
        files=stored_files(package),
    )


def _digest(version: Version | None) -> str:
    return version.digest if version is not None else ""


def _write_synced(file: Path, content: str | bytes) -> None:
    """Replace a file atomically; a reader sees the old or the new content, also after a crash."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with temporary.open("xb") as out:
        out.write(content.encode() if isinstance(content, str) else content)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)
    _sync_folder(file.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _exchange(staged: Path, target: Path) -> None:
    """Put a staged folder into use; the old one, if any, is then at the staged path or removed with it."""
    if not target.exists():
        staged.rename(target)
    elif not _swap(staged, target):  # no such call on this system: `_recover` completes a change cut in two
        old = staged.with_name(f"{staged.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        staged.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    _sync_folder(target.parent)


def _swap(a: Path, b: Path) -> bool:
    """Exchange two folders in one system call; return False if the system has none."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    result = libc.renameat2(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE)
    if result == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(b))
