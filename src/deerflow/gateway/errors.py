"""Exception handlers: one table maps error codes to HTTP statuses."""

import logging
import reprlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from deerflow.errors import DeerFlowError, NotFoundError, SkillBlockedError
from deerflow.gateway.deps import json_response

logger = logging.getLogger(__name__)

STATUS = {
    "not_found": 404,
    "invalid_input": 400,
    "skill_blocked": 400,
    "path_refused": 403,
    "too_large": 413,
    "conflict": 409,
    "changed": 412,
    "unsupported_type": 415,
    "thread_busy": 409,
    "stale_attempt": 409,
    "config_invalid": 400,
    "sandbox_unavailable": 503,
    "model_failed": 502,
    "mcp_failed": 502,
}


_UNREAD_BODY = "There was an error parsing the body"
"""FastAPI's message for a body that fails to decode as JSON for a reason other than syntax."""
_LISTS = {
    "assistant": "POST /assistants/search",
    "thread": "POST /threads/search",
    "run": "GET /threads/{thread_id}/runs",
    "checkpoint": "POST /threads/{thread_id}/history",
}
_MOST_SHOWN = 5
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 80


def explain_problems(problems: Sequence[Mapping[str, Any]]) -> str:
    """Format validation errors as one text: each location, its value and what is allowed."""
    shown = [_explain(problem) for problem in problems[:_MOST_SHOWN]]
    left = len(problems) - len(shown)
    return "; ".join(shown) + (f"; and {left} more" if left > 0 else "")


def _hint(error: DeerFlowError) -> str:
    """Return which route lists the existing objects, for a `NotFoundError`."""
    route = _LISTS.get(error.kind) if isinstance(error, NotFoundError) else None
    return f"; {route} lists those that there are" if route else ""


def _better_detail(error: HTTPException, request: Request) -> str | None:
    """Return a more helpful text for a terse framework error; None if it says enough."""
    if error.detail == HTTPStatus(error.status_code).phrase:  # the default text: no route matches
        where = f"{request.method} {request.url.path}"
        return f"{error.detail}: there is no {where} here; /openapi.json lists all routes"
    if error.detail == _UNREAD_BODY:
        why = str(error.__cause__).partition(";")[0]
        return f"the body cannot be read as JSON: {why}; send one JSON value in UTF-8"
    if request.headers.get("content-type", "").startswith("multipart/"):
        sent = request.headers["content-type"][:80]
        return f"{error.detail} The body could not be read as Content-Type {sent!a}: send a multipart form"
    return None


def _wrong_type(request: Request) -> str:
    sent = request.headers.get("content-type")
    problem = f"Content-Type is {sent[:80]!a}" if sent else "Content-Type is missing"
    return f"{problem}: send the body as JSON, with Content-Type: application/json"


def _explain(problem: Mapping[str, Any]) -> str:
    source, *path = problem["loc"] or ("body",)
    if problem["type"] == "json_invalid":
        why = problem.get("ctx", {}).get("error", problem["msg"])
        return f"the body is no JSON: {why} at character {path[0] if path else 0}"
    location = f"{source} " + ".".join(map(str, path)) if path else f"the {source}"
    if problem["type"] == "missing":
        return f"{location} is missing: it has to be sent"
    if problem["type"] == "extra_forbidden":
        return f"{location} is unknown: leave it out"
    return f"{location} is {_short.repr(problem.get('input'))}: {problem['msg']}"


def handle_errors(app: FastAPI) -> None:
    """Register handlers that turn every error into a response with a `detail`."""

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        # FastAPI's own handler fails on input that cannot be serialized as JSON: NaN, invalid text
        problems = error.errors()
        if request.url.path.endswith("/secrets"):
            problems = [{**problem, "input": "…"} for problem in problems]  # it may be a secret
        if any(isinstance(problem.get("input"), bytes) and len(problem["loc"]) == 1 for problem in problems):
            return json_response({"detail": _wrong_type(request), "code": "unsupported_type"}, 415)
        body = {"detail": problems, "message": explain_problems(problems), "code": "invalid_input"}
        return json_response(body, 422)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if (detail := _better_detail(error, request)) is not None:
            error = HTTPException(error.status_code, detail, headers=error.headers)
        return await http_exception_handler(request, error)

    @app.exception_handler(DeerFlowError)
    async def known(request: Request, error: DeerFlowError) -> Response:
        status = STATUS.get(error.code, 500)
        if status == 500:
            logger.error("%s %s failed: %s", request.method, request.url.path, error)
        rules = {"rules": list(error.rules)} if isinstance(error, SkillBlockedError) else {}
        return json_response({"detail": str(error) + _hint(error), "code": error.code, **rules}, status)

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> Response:
        return json_response(
            {"detail": "The server failed unexpectedly; its log says why.", "code": "internal"}, 500
        )
