"""Routes for uploads and artifacts."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, UploadFile
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import UploadFile as FormFile
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from deerflow.domain import ThreadFolders
from deerflow.errors import InvalidInputError, TooLargeError
from deerflow.files.artifacts import (
    ArtifactFile,
    Output,
    check_zip_size,
    list_outputs,
    open_artifact_or_member,
    replace_artifact,
    zip_outputs,
)
from deerflow.files.uploads import (
    artifact_url,
    check_size,
    checked_name,
    delete_upload,
    list_uploads,
    save_upload,
)
from deerflow.gateway.deps import (
    CurrentApp,
    CurrentUser,
    ThreadPath,
    idle_thread,
    json_response,
    owned_thread,
)
from deerflow.gateway.openapi import answers, request_body
from deerflow.runtime.inputs import check_thread_id

router = APIRouter(tags=["files"])

_BLOCK = 1 << 20
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@router.post(
    "/threads/{thread_id}/uploads", openapi_extra=request_body("upload_form"), **answers("Uploaded", 400, 413)
)
async def upload_files(
    thread_id: ThreadPath, request: Request, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Store files in a thread, which is created where it does not exist.

    The body is a multipart form with one field `files` per file. Documents are also converted to Markdown.
    Names and sizes are checked before the first file is stored; `GET …/uploads/limits` tells how many files
    there may be, and how large.
    """
    check_thread_id(thread_id)
    limits = deerflow.settings.uploads
    async with request.form(max_files=limits.max_files + 1, max_fields=10) as form:
        files = [item for _, item in form.multi_items() if isinstance(item, FormFile)]
        if not files:
            raise InvalidInputError("no files were sent; send them as multipart form fields named 'files'")
        if len(files) > limits.max_files:
            raise TooLargeError(f"{len(files)} files at once; at most {limits.max_files} (uploads.max_files)")
        for file in files:  # check all of them before storing the first
            checked_name(file.filename or "")
            check_size(file.filename or "", file.size or 0, limits)
        if sum(file.size or 0 for file in files) > limits.max_total_size:
            raise TooLargeError(f"more than {limits.max_total_size:,} bytes at once (uploads.max_total_size)")
        await deerflow.storage.threads.create(thread_id, user, {})
        folders = deerflow.paths.thread(user, thread_id)
        saved = [await save_upload(folders, file.filename or "", _chunks(file), limits) for file in files]
    saved = await deerflow.documents.convert(folders, saved)
    return json_response(
        {
            "success": True,
            "files": [item.to_dict() for item in saved],
            "message": f"{len(saved)} file{'s' if len(saved) != 1 else ''} uploaded",
            "skipped_files": [],
        }
    )


@router.get("/threads/{thread_id}/uploads/limits", **answers("UploadLimits"))
async def get_upload_limits(thread_id: ThreadPath, deerflow: CurrentApp) -> Response:
    """Return how many files may be uploaded in one request, and how large they may be."""
    limits = deerflow.settings.uploads
    return json_response(
        {
            "max_files": limits.max_files,
            "max_file_size": limits.max_file_size,
            "max_total_size": limits.max_total_size,
        }
    )


@router.get("/threads/{thread_id}/uploads/list", operation_id="list_uploads", **answers("UploadList", 404))
async def uploads(thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the files that were uploaded to a thread."""
    await owned_thread(deerflow, thread_id, user)
    found = await asyncio.to_thread(list_uploads, deerflow.paths.thread(user, thread_id))
    return json_response({"files": [item.to_dict() for item in found], "count": len(found)})


@router.delete(
    "/threads/{thread_id}/uploads/{filename}", operation_id="delete_upload", **answers("Done", 400, 404)
)
async def remove_upload(
    thread_id: ThreadPath, filename: str, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Delete one uploaded file and its Markdown text."""
    await owned_thread(deerflow, thread_id, user)
    await asyncio.to_thread(delete_upload, deerflow.paths.thread(user, thread_id), filename)
    return json_response({"success": True, "message": f"{filename} is deleted"})


@router.get("/threads/{thread_id}/artifacts", **answers(("ArtifactList", "zip"), 404, 413))
async def list_artifacts(
    thread_id: ThreadPath,
    user: CurrentUser,
    deerflow: CurrentApp,
    archive: Annotated[str | None, Query(alias="zip", max_length=8)] = None,
) -> Response:
    """List the files that the agent wrote for the user, or return all of them as one ZIP archive.

    `?zip` or `?zip=1` asks for the archive, which is streamed.
    """
    await owned_thread(deerflow, thread_id, user)
    folders = deerflow.paths.thread(user, thread_id)
    if archive is None or archive.lower() in ("0", "false"):
        found = await asyncio.to_thread(list_outputs, folders)
        return json_response({"files": [_output(thread_id, each) for each in found], "count": len(found)})
    await asyncio.to_thread(check_zip_size, folders)
    headers = {
        "Content-Disposition": f'attachment; filename="outputs-{thread_id[:64]}.zip"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-store",
    }
    return StreamingResponse(zip_outputs(folders), headers=headers, media_type="application/zip")


class ArtifactEdit(BaseModel):
    """A new text for a file."""

    model_config = ConfigDict(extra="forbid")

    content: str
    expected_sha256: str = Field(pattern="^[0-9a-f]{64}$")


@router.put(
    "/threads/{thread_id}/artifacts/{path:path}", **answers("ArtifactWritten", 400, 404, 409, 412, 413, 415)
)
async def edit_artifact(
    thread_id: ThreadPath, path: str, body: ArtifactEdit, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Replace a text file of a thread, if it is still what the caller has read.

    `expected_sha256` is the hash of the content that the caller knows: the `ETag` of `GET`. Another content
    answers 412, a run in flight 409.
    """
    await idle_thread(deerflow, thread_id, user)
    folders = deerflow.paths.thread(user, thread_id)
    written = await asyncio.to_thread(
        replace_artifact, folders, path, body.content, expected=body.expected_sha256
    )
    shown = {"path": "/" + path.lstrip("/"), "sha256": written, "size": len(body.content.encode())}
    return json_response(shown, headers={"ETag": f'"{written}"'})


@router.get(
    "/threads/{thread_id}/artifacts/{path:path}",
    **answers("file", 400, 404, 416, empty={206: "The range that the header `Range` asks for."}),
)
async def get_artifact(
    thread_id: ThreadPath,
    path: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    request: Request,
    download: bool = False,
) -> Response:
    """Return a file of a thread, whole or the range that the header `Range` names.

    `path` is the path that the agent sees, such as `mnt/user-data/outputs/report.md`. `x.skill/SKILL.md` is a
    file inside an archive. The `Content-Type` is the file's own; files that could act in a browser are sent
    as attachments.
    """
    await owned_thread(deerflow, thread_id, user)
    folders = deerflow.paths.thread(user, thread_id)
    header = request.headers.get("range")
    return await asyncio.to_thread(_artifact_response, folders, path, header, download)


def _output(thread_id: str, found: Output) -> dict[str, Any]:
    return {
        "path": found.path,
        "filename": found.parts[-1],
        "size": found.size,
        "modified": found.modified,
        "artifact_url": artifact_url(thread_id, found.path),
    }


async def _chunks(file: UploadFile | FormFile) -> AsyncIterator[bytes]:
    while block := await file.read(_BLOCK):
        yield block


class _ArtifactResponse(StreamingResponse):
    """Streams a part of an artifact and closes it, also if the client disconnects before the first byte."""

    def __init__(
        self, found: ArtifactFile, span: tuple[int, int], status: int, headers: dict[str, str]
    ) -> None:
        super().__init__(found.read(*span), status, headers, media_type=found.media_type)
        self._found = found

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with closing(self._found):
            await super().__call__(scope, receive, send)


def _artifact_response(folders: ThreadFolders, path: str, header: str | None, download: bool) -> Response:
    with ExitStack() as stack:
        found = stack.enter_context(closing(open_artifact_or_member(folders, path)))
        wanted = _range_in(header)
        span = _span(wanted, found.size) if wanted else (0, found.size)
        if span is None:
            return Response(status_code=416, headers={"Content-Range": f"bytes */{found.size}"})
        start, end = span
        headers = _headers(found, download) | {"Content-Length": str(end - start)}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size}"
        stack.pop_all()  # from here on the response closes the file
    return _ArtifactResponse(found, span, 206 if wanted else 200, headers)


def _headers(found: ArtifactFile, download: bool) -> dict[str, str]:
    """Return headers that keep active content in the file from acting on this site."""
    kind = "attachment" if download or found.is_active else "inline"
    return {
        "Content-Disposition": f"{kind}; filename*=UTF-8''{quote(found.name, safe='')}",
        "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:",
        "X-Content-Type-Options": "nosniff",
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "ETag": found.tag(),
    }


def _range_in(header: str | None) -> tuple[str, str] | None:
    """Parse the first and last byte of a Range header; an invalid header is ignored (RFC 9110)."""
    match = _RANGE.fullmatch((header or "").strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    return None if first and last and int(first) > int(last) else (first, last)


def _span(wanted: tuple[str, str], size: int) -> tuple[int, int] | None:
    """Return start and end of the bytes to send; None if the range is outside the file."""
    first, last = wanted
    if first:
        start, end = int(first), min(int(last) + 1 if last else size, size)
    else:
        start, end = max(0, size - int(last)), size
    return (start, end) if start < end else None
