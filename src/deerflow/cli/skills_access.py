"""Where `deerflow skills` acts: on the files of this machine, or on a running server."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from typing_extensions import override

from deerflow.cli.server_api import ServerApi
from deerflow.config import SettingsSource
from deerflow.domain import DEFAULT_USER
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.sandbox import choose_users_root
from deerflow.skills import InstallOptions, SkillChange
from deerflow.skills.archive import pack
from deerflow.skills.install import OnConflict
from deerflow.skills.library import SkillLibrary, enabling, installation_view, library_of, problem_view

_SERVER_SECONDS = 120


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """What to install: a folder or archive of this machine, or a skill of a catalogue."""

    path: Path | None = None
    name: str = ""
    catalogue: str | None = None
    digest: str | None = None
    is_update: bool = False
    on_conflict: OnConflict = "refuse"


class SkillsAccess(ABC):
    """What the commands do with skills; everything is returned as JSON values."""

    @abstractmethod
    async def listed(self) -> dict[str, Any]: ...

    @abstractmethod
    async def shown(self, name: str) -> dict[str, Any]: ...

    @abstractmethod
    async def install(self, request: InstallRequest) -> dict[str, Any]: ...

    @abstractmethod
    async def remove(self, name: str) -> None: ...

    @abstractmethod
    async def enable(self, name: str, *, is_enabled: bool) -> dict[str, Any]: ...

    @abstractmethod
    async def export(self, name: str) -> bytes: ...

    @abstractmethod
    async def search(self, query: str, limit: int) -> dict[str, Any]: ...

    @abstractmethod
    async def history(self, name: str) -> list[dict[str, Any]]: ...

    @abstractmethod
    async def rollback(self, name: str, version: int | None) -> None: ...

    @abstractmethod
    async def diff(self, name: str, old: int | None, new: int | None) -> str: ...

    @abstractmethod
    async def draft_diff(self, name: str) -> str: ...

    @abstractmethod
    async def promote(self, name: str) -> None: ...

    @abstractmethod
    async def discard(self, name: str) -> None: ...


class LocalSkills(SkillsAccess):
    """The skills of the settings' folders; a running server finds changes within seconds."""

    def __init__(self, config: Path | None) -> None:
        self._source = SettingsSource(config)

    @property
    def library(self) -> SkillLibrary:
        """The default user's skills, with the current settings."""
        loaded = self._source.current()
        users = choose_users_root(loaded.paths, loaded.settings.sandbox)
        return library_of(loaded, replace(loaded.paths, users_root=users), DEFAULT_USER)

    @override
    async def listed(self) -> dict[str, Any]:
        library = self.library
        return {
            "skills": [library.view(skill) for skill in library.all()],
            "problems": [problem_view(problem, str(problem.file)) for problem in library.problems()],
        }

    @override
    async def shown(self, name: str) -> dict[str, Any]:
        return self.library.detail(name)

    @override
    async def install(self, request: InstallRequest) -> dict[str, Any]:
        options = InstallOptions(
            str(request.path), is_update=request.is_update, on_conflict=request.on_conflict
        )
        if request.path is not None:
            return installation_view(await self.library.install_path(request.path, options))
        done = await self.library.install_named(
            request.name, options, catalogue=request.catalogue, digest=request.digest
        )
        return installation_view(done)

    @override
    async def remove(self, name: str) -> None:
        self.library.remove(name)

    @override
    async def enable(self, name: str, *, is_enabled: bool) -> dict[str, Any]:
        skill = self.library.find(name)
        self._source.edit_extensions(enabling(name, is_enabled=is_enabled))
        library = self.library
        library.check_state(skill, is_enabled=is_enabled)
        return library.view(skill)

    @override
    async def export(self, name: str) -> bytes:
        return self.library.export(name)

    @override
    async def search(self, query: str, limit: int) -> dict[str, Any]:
        return await self.library.search(query, limit=limit)

    @override
    async def history(self, name: str) -> list[dict[str, Any]]:
        return self.library.history(name)

    @override
    async def rollback(self, name: str, version: int | None) -> None:
        await self.library.rollback(name, version)

    @override
    async def diff(self, name: str, old: int | None, new: int | None) -> str:
        return self.library.diff(name, old, new)

    @override
    async def draft_diff(self, name: str) -> str:
        return self.library.custom.draft_diff(name)

    @override
    async def promote(self, name: str) -> None:
        self.library.custom.promote(name, SkillChange("user", checks={"gate": {"approved_by": "user"}}))

    @override
    async def discard(self, name: str) -> None:
        self.library.custom.discard(name)


class ServerSkills(SkillsAccess):
    """The skills of a running server."""

    def __init__(self, api: ServerApi) -> None:
        self._api = api

    @override
    async def listed(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._api.ask("GET", "/skills")
        return found

    @override
    async def shown(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._api.ask("GET", _path(name))
        if found["editable"]:
            more = await self._api.ask("GET", _custom(name))
            found |= {"content": more["content"], "files": [{"path": path} for path in more["files"]]}
        return found

    @override
    async def install(self, request: InstallRequest) -> dict[str, Any]:
        parameters = {"update": str(request.is_update).lower(), "on_conflict": request.on_conflict}
        if request.path is not None:
            data = await asyncio.to_thread(_archive, request.path)
            sent = self._api.send("/skills/install", data, kind="application/octet-stream", **parameters)
            return dict(await sent)
        body = {"name": request.name, "catalogue": request.catalogue, "digest": request.digest}
        return dict(await self._api.ask("POST", "/skills/install", {**body, **parameters}))

    @override
    async def remove(self, name: str) -> None:
        await self._api.ask("DELETE", _custom(name))

    @override
    async def enable(self, name: str, *, is_enabled: bool) -> dict[str, Any]:
        return dict(await self._api.ask("PUT", _path(name), {"enabled": is_enabled}))

    @override
    async def export(self, name: str) -> bytes:
        data: bytes = await self._api.ask("GET", f"{_path(name)}/export")
        return data

    @override
    async def search(self, query: str, limit: int) -> dict[str, Any]:
        words = urlencode({"q": query, "limit": limit})
        return dict(await self._api.ask("GET", f"/skills/search?{words}"))

    @override
    async def history(self, name: str) -> list[dict[str, Any]]:
        return list((await self._api.ask("GET", f"{_custom(name)}/history"))["history"])

    @override
    async def rollback(self, name: str, version: int | None) -> None:
        await self._api.ask("POST", f"{_custom(name)}/rollback", {"to_version": version})

    @override
    async def diff(self, name: str, old: int | None, new: int | None) -> str:
        numbers = [entry["version"] for entry in await self.history(name)]
        new = new if new is not None else max(numbers, default=1)
        old = old if old is not None else max((number for number in numbers if number < new), default=new)
        words = urlencode({"from_version": old, "to_version": new})
        return str((await self._api.ask("GET", f"{_custom(name)}/diff?{words}"))["diff"])

    @override
    async def draft_diff(self, name: str) -> str:
        return str((await self._api.ask("GET", f"{_custom(name)}/draft"))["diff"])

    @override
    async def promote(self, name: str) -> None:
        await self._api.ask("POST", f"{_custom(name)}/draft/promote")

    @override
    async def discard(self, name: str) -> None:
        await self._api.ask("DELETE", f"{_custom(name)}/draft")


@asynccontextmanager
async def opened_skills(config: Path | None, url: str | None) -> AsyncIterator[SkillsAccess]:
    """Yield the skills of a server, or those of this machine if `url` is None."""
    if url is None:
        yield LocalSkills(config)
        return
    timeout = aiohttp.ClientTimeout(total=_SERVER_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield ServerSkills(ServerApi(session, url))


def _archive(path: Path) -> bytes:
    try:
        return pack(path, top=None) if path.is_dir() else path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"'{path}' cannot be read: {error.strerror or error}") from error


def _path(name: str) -> str:
    return f"/skills/{_quoted(name)}"


def _custom(name: str) -> str:
    return f"/skills/custom/{_quoted(name)}"


def _quoted(name: str) -> str:
    if not name.strip(".") or "/" in name:  # would be another route
        raise NotFoundError("skill", name[:80])
    return quote(name, safe="")
