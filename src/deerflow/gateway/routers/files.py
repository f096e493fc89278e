"""Uploads and artifacts over HTTP."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing
from urllib.parse import quote

from fastapi import APIRouter, Request, UploadFile
from starlette.datastructures import UploadFile as FormFile
from starlette.responses import Response, StreamingResponse

from deerflow.domain import ThreadFolders, is_thread_id
from deerflow.errors import InvalidInputError, TooLargeError
from deerflow.gateway.deps import CurrentUser, House, ThreadPath, json_response, owned_thread
from deerflow.runtime.artifacts import Artifact, open_artifact
from deerflow.runtime.uploads import delete_upload, list_uploads, save_upload

router = APIRouter(tags=["files"])

_BLOCK = 1 << 20
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@router.post("/threads/{thread_id}/uploads")
async def upload(thread_id: ThreadPath, request: Request, user: CurrentUser, house: House) -> Response:
    """Store files in a thread, made now if it is not there yet."""
    if not is_thread_id(thread_id):
        raise InvalidInputError(
            f"thread id '{thread_id[:80]}' may only have letters, digits, '-' and '_' (64)"
        )
    limits = house.settings.uploads
    async with request.form(max_files=limits.max_files + 1, max_fields=10) as form:
        files = [item for _, item in form.multi_items() if isinstance(item, FormFile)]
        if not files:
            raise InvalidInputError("no files were sent; send them as multipart form fields named 'files'")
        if len(files) > limits.max_files:
            raise TooLargeError(f"{len(files)} files at once; at most {limits.max_files} (uploads.max_files)")
        if sum(file.size or 0 for file in files) > limits.max_total_size:
            raise TooLargeError(f"more than {limits.max_total_size:,} bytes at once (uploads.max_total_size)")
        await house.storage.threads.create(thread_id, user, {})
        folders = house.paths.thread(user, thread_id)
        saved = [await save_upload(folders, file.filename or "", _chunks(file), limits) for file in files]
    return json_response(
        {
            "success": True,
            "files": [item.to_dict() for item in saved],
            "message": f"{len(saved)} file{'s' if len(saved) != 1 else ''} uploaded",
            "skipped_files": [],
        }
    )


@router.get("/threads/{thread_id}/uploads/limits")
async def upload_limits(thread_id: ThreadPath, house: House) -> Response:
    """Return how much may be uploaded."""
    limits = house.settings.uploads
    return json_response(
        {
            "max_files": limits.max_files,
            "max_file_size": limits.max_file_size,
            "max_total_size": limits.max_total_size,
        }
    )


@router.get("/threads/{thread_id}/uploads/list")
async def uploads(thread_id: ThreadPath, user: CurrentUser, house: House) -> Response:
    """List a thread's uploads."""
    await owned_thread(house, thread_id, user)
    found = await asyncio.to_thread(list_uploads, house.paths.thread(user, thread_id))
    return json_response({"files": [item.to_dict() for item in found], "count": len(found)})


@router.delete("/threads/{thread_id}/uploads/{filename}")
async def remove_upload(thread_id: ThreadPath, filename: str, user: CurrentUser, house: House) -> Response:
    """Delete one upload."""
    await owned_thread(house, thread_id, user)
    await asyncio.to_thread(delete_upload, house.paths.thread(user, thread_id), filename)
    return json_response({"success": True, "message": f"{filename} is deleted"})


@router.get("/threads/{thread_id}/artifacts/{path:path}")
async def artifact(
    thread_id: ThreadPath,
    path: str,
    user: CurrentUser,
    house: House,
    request: Request,
    download: bool = False,
) -> Response:
    """Return a file of the thread, whole or a range of it."""
    await owned_thread(house, thread_id, user)
    folders = house.paths.thread(user, thread_id)
    header = request.headers.get("range")
    return await asyncio.to_thread(_artifact_response, folders, path, header, download)


async def _chunks(file: UploadFile | FormFile) -> AsyncIterator[bytes]:
    while block := await file.read(_BLOCK):
        yield block


def _artifact_response(folders: ThreadFolders, path: str, wanted: str | None, download: bool) -> Response:
    with ExitStack() as stack:
        found = stack.enter_context(closing(open_artifact(folders, path)))
        span = _span(wanted, found.size)
        if span is None:
            return Response(status_code=416, headers={"Content-Range": f"bytes */{found.size}"})
        start, end = span
        headers = _headers(found, download) | {"Content-Length": str(end - start)}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size}"
        stack.pop_all()  # from here on the body closes the file
    body = _body(found, start, end)
    return StreamingResponse(body, 206 if wanted else 200, headers, media_type=found.media_type)


def _body(found: Artifact, start: int, end: int) -> Iterator[bytes]:
    with closing(found):
        yield from found.read(start, end)


def _headers(found: Artifact, download: bool) -> dict[str, str]:
    """Return headers under which nothing in the file can act on this site."""
    kind = "attachment" if download or found.is_active else "inline"
    return {
        "Content-Disposition": f"{kind}; filename*=UTF-8''{quote(found.name, safe='')}",
        "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:",
        "X-Content-Type-Options": "nosniff",
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "ETag": f'"{found.digest()}"',
    }


def _span(wanted: str | None, size: int) -> tuple[int, int] | None:
    """Return the bytes to send as start and end, None when the range does not fit the file."""
    if not wanted:
        return 0, size
    match = _RANGE.fullmatch(wanted.strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size
    start, end = int(first), min(int(last) + 1 if last else size, size)
    return (start, end) if start < end else None
