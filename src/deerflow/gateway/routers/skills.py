"""Routes for skills: list, enable or disable, install, export, search."""

import asyncio
import os
import tempfile
from contextlib import closing
from typing import Annotated, Any, BinaryIO, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError, model_validator
from starlette.datastructures import UploadFile as FormFile
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.errors import InvalidInputError, TooLargeError, UnsupportedTypeError
from deerflow.files.artifacts import open_artifact
from deerflow.gateway.deps import CurrentApp, CurrentUser, json_response, owned_thread
from deerflow.gateway.openapi import answers, request_body
from deerflow.skills import SKILL_SUFFIX, Installation, InstallOptions
from deerflow.skills.archive import MAX_ARCHIVE_BYTES
from deerflow.skills.library import SkillLibrary, installation_view, problem_view

router = APIRouter(tags=["skills"])
ARCHIVE_TYPES = (
    "application/gzip",
    "application/octet-stream",
    "application/x-gzip",
    "application/x-zip-compressed",
    "application/zip",
)
"""Media types of a body that is an archive itself."""


class SkillUpdate(BaseModel):
    """Whether agents may use a skill."""

    enabled: bool


class SkillInstall(BaseModel):
    """Where a skill is: a file of a thread, or a catalogue."""

    thread_id: str | None = Field(None, min_length=1, max_length=128)
    path: str | None = Field(None, min_length=1, max_length=4096)
    name: str | None = Field(None, min_length=1, max_length=128)
    catalogue: str | None = Field(None, max_length=4096)
    digest: str | None = Field(None, max_length=128)
    update: bool = False
    on_conflict: Literal["refuse", "mine", "theirs"] = "refuse"

    @model_validator(mode="after")
    def _names_one_source(self) -> "SkillInstall":
        is_file = self.thread_id is not None and self.path is not None
        if is_file == (self.name is not None):
            raise ValueError("send thread_id and path of an archive, or name of a skill in a catalogue")
        return self


@router.get("/skills", **answers("SkillList"))
async def list_skills(user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the caller's skills, sorted by name, with whether agents may use them.

    `problems` says which files of skills were skipped, shadowed by another skill, or loaded with a warning.
    """
    return json_response(await asyncio.to_thread(_listed, deerflow, user))


@router.get("/skills/search", **answers("SkillSearch"))
async def search_skills(
    user: CurrentUser,
    deerflow: CurrentApp,
    query: Annotated[str, Query(alias="q", max_length=400)] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """Search the catalogues of `skills.catalogues`, the best match first; without `q`, all by name.

    `problems` says which catalogues could not be read. A listing of a catalogue is used for five minutes.
    """
    return json_response(await deerflow.skill_library(user).search(query, limit=limit))


@router.post("/skills/reload", **answers("SkillsReloaded"))
async def reload_skills(user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Look at the folders of skills at once; changes on disk are otherwise found within seconds."""
    found = await asyncio.to_thread(deerflow.skill_library(user).all)
    message = f"{len(found)} skill{'' if len(found) == 1 else 's'} found"
    return json_response({"success": True, "scope": "process", "message": message})


@router.post(
    "/skills/install",
    openapi_extra=request_body("skill_install"),
    **answers("SkillInstalled", 404, 409, 413, 415, 422, own_errors={400: "SkillBlocked"}),
)
async def install_skill(
    request: Request,
    user: CurrentUser,
    deerflow: CurrentApp,
    update: Annotated[bool, Query()] = False,
    on_conflict: Annotated[Literal["refuse", "mine", "theirs"], Query()] = "refuse",
) -> Response:
    """Install a skill for runs that start afterwards, from an archive or a catalogue.

    The body is the archive, a multipart form with the archive as `file`, or JSON that names a `.skill` file
    of a thread or a skill of a catalogue. The archive (ZIP or gzipped tar) holds one folder with a
    `SKILL.md`. It is scanned first: a blocked one answers 400 with the ids of the rules. A skill of the same
    name answers 409, unless `update` is true: then the files that you changed are kept, and files that you
    and the update changed answer 409 or are decided by `on_conflict`. For archives, both are parameters of
    the query.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    library = deerflow.skill_library(user)
    if kind == "application/json":
        done = await _install_named(deerflow, user, await _json_body(request))
    elif kind == "multipart/form-data":
        options = InstallOptions("upload", is_update=update, on_conflict=on_conflict)
        done = await _install_form(request, library, options)
    elif kind in ARCHIVE_TYPES:
        options = InstallOptions("upload", is_update=update, on_conflict=on_conflict)
        done = await _install_body(request, library, options)
    else:
        raise UnsupportedTypeError(
            f"Content-Type is {kind[:80]!a}: send an archive as application/zip or as the field 'file' of a "
            "multipart form, or application/json that names one"
        )
    return json_response(installation_view(done))


@router.get("/skills/{name}", **answers("Skill", 404))
async def get_skill(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return one skill by its name."""
    library = deerflow.skill_library(user)
    return json_response(await asyncio.to_thread(lambda: library.view(library.find(name))))


@router.put("/skills/{name}", **answers("Skill", 400, 404, 409))
async def update_skill(name: str, body: SkillUpdate, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Switch a skill on or off for runs that start afterwards.

    A skill whose state is set in `config.yaml` answers 409.
    """
    skill = await deerflow.enable_skill(name, user, is_enabled=body.enabled)
    return json_response(await asyncio.to_thread(deerflow.skill_library(user).view, skill))


@router.get("/skills/{name}/export", **answers("skill_archive", 400, 404, 413))
async def export_skill(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return a skill as a `.skill` archive, which `POST /skills/install` takes.

    The same files always give the same bytes.
    """
    data = await asyncio.to_thread(deerflow.skill_library(user).export, name)
    filename = quote(f"{name}{SKILL_SUFFIX}", safe="")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{filename}"}
    return Response(data, headers=headers, media_type="application/zip")


def _listed(deerflow: DeerFlow, user: str) -> dict[str, Any]:
    library, folders = deerflow.skill_library(user), deerflow.skills.folders
    return {
        "skills": [library.view(skill) for skill in library.all()],
        "problems": [
            problem_view(problem, folders.path_of(problem.file, user)) for problem in library.problems()
        ],
    }


async def _json_body(request: Request) -> SkillInstall:
    try:
        return SkillInstall.model_validate_json((await request.body()).decode(errors="replace"))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        raise RequestValidationError(
            [{**each, "loc": ("body", *each["loc"])} for each in problems]
        ) from error


async def _install_named(deerflow: DeerFlow, user: str, body: SkillInstall) -> Installation:
    options = InstallOptions(body.path or "", is_update=body.update, on_conflict=body.on_conflict)
    library = deerflow.skill_library(user)
    if body.thread_id is None or body.path is None:
        name = body.name or ""
        return await library.install_named(name, options, catalogue=body.catalogue, digest=body.digest)
    if not body.path.endswith(SKILL_SUFFIX):
        raise InvalidInputError(f"path '{body.path[:200]}' must name a {SKILL_SUFFIX} file")
    await owned_thread(deerflow, body.thread_id, user)
    folders = deerflow.folders(user, body.thread_id)
    found = await asyncio.to_thread(open_artifact, folders, body.path)
    with closing(found), os.fdopen(os.dup(found.fd), "rb") as file:
        return await library.install_archive(file, options)


async def _install_form(request: Request, library: SkillLibrary, options: InstallOptions) -> Installation:
    async with request.form(max_files=1, max_fields=1) as form:
        files = [item for _, item in form.multi_items() if isinstance(item, FormFile)]
        if not files:
            raise InvalidInputError("no file was sent; send the archive as the form's field 'file'")
        # A small upload is in memory until something asks for its descriptor.
        return await library.install_archive(files[0].file, options)


async def _install_body(request: Request, library: SkillLibrary, options: InstallOptions) -> Installation:
    with tempfile.TemporaryFile() as file:
        size = 0
        async for block in request.stream():
            size += len(block)
            if size > MAX_ARCHIVE_BYTES:
                raise TooLargeError(f"the archive has more than {MAX_ARCHIVE_BYTES:,} bytes")
            await asyncio.to_thread(_append, file, block)
        return await library.install_archive(file, options)


def _append(file: BinaryIO, block: bytes) -> None:
    file.write(block)
