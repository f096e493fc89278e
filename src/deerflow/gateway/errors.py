"""Turns errors into answers: one table from code to status."""

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from deerflow.errors import DeerFlowError
from deerflow.gateway.deps import json_response

logger = logging.getLogger(__name__)

STATUS = {
    "not_found": 404,
    "invalid_input": 400,
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
}


def handle_errors(app: FastAPI) -> None:
    """Make every error of the house an answer with a `detail`."""

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        # ours, since what was sent may be no JSON that could be sent back: NaN, broken text
        return json_response({"detail": error.errors()}, 422)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if error.detail == HTTPStatus(error.status_code).phrase:  # nobody has said more: no route fits
            said = f"{error.detail}: there is no {request.method} {request.url.path} here"
            error = HTTPException(error.status_code, said, headers=error.headers)
        return await http_exception_handler(request, error)

    @app.exception_handler(DeerFlowError)
    async def known(request: Request, error: DeerFlowError) -> Response:
        status = STATUS.get(error.code, 500)
        if status == 500:
            logger.error("%s %s failed: %s", request.method, request.url.path, error)
        return json_response({"detail": str(error), "code": error.code}, status)

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> Response:
        return json_response(
            {"detail": "The server failed unexpectedly; its log says why.", "code": "internal"}, 500
        )
