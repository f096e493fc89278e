"""Lark routes of a server without the integration: its status and clear refusals."""

from typing import NoReturn

from fastapi import APIRouter, HTTPException
from starlette.responses import Response

from deerflow.gateway.deps import json_response
from deerflow.gateway.openapi import answers, refuses

router = APIRouter(prefix="/integrations/lark", tags=["integrations"])

_OFF = "The Lark integration is not available on this server."


@router.get("/status", operation_id="get_lark_status", **answers("LarkStatus"))
async def status() -> Response:
    """Return the state of the Lark integration: not installed."""
    return json_response(
        {
            "installed": False,
            "version": "",
            "manifest_version": None,
            "latest_available_version": None,
            "runtime_version_mismatch": False,
            "app_configured": False,
            "app_id": None,
            "app_brand": None,
            "skills_expected": 0,
            "skills_installed": 0,
            "installed_skills": [],
            "enabled_skills": [],
            "install_path": "",
            "cli": {"available": False, "path": None, "version": None, "error": _OFF},
            "auth": {"status": "unavailable", "message": _OFF, "user": None, "verified": False},
            "sandbox_runtime_mode": "none",
            "sandbox_runtime_ready": False,
            "sandbox_runtime_detail": _OFF,
        }
    )


@router.post("/install", operation_id="install_lark", **refuses(503, {"detail": _OFF}))
async def install() -> Response:
    """Install the Lark integration: always refused.

    The Lark integration is not available on this server, so this always answers 503.
    """
    _refuse()


@router.post("/config/start", operation_id="start_lark_configuration", **refuses(503, {"detail": _OFF}))
async def start_configuration() -> Response:
    """Start to register an app with Lark: always refused.

    The Lark integration is not available on this server, so this always answers 503.
    """
    _refuse()


@router.post("/config/complete", operation_id="complete_lark_configuration", **refuses(503, {"detail": _OFF}))
async def complete_configuration() -> Response:
    """Finish to register an app with Lark: always refused.

    The Lark integration is not available on this server, so this always answers 503.
    """
    _refuse()


@router.post("/config/credentials", operation_id="set_lark_credentials", **refuses(503, {"detail": _OFF}))
async def set_credentials() -> Response:
    """Set the credentials of a Lark app: always refused.

    The Lark integration is not available on this server, so this always answers 503.
    """
    _refuse()


@router.post("/auth/start", operation_id="start_lark_authorization", **refuses(503, {"detail": _OFF}))
async def start_authorization() -> Response:
    """Start to authorize a Lark app: always refused.

    The Lark integration is not available on this server, so this always answers 503.
    """
    _refuse()


@router.post("/auth/complete", operation_id="complete_lark_authorization", **refuses(503, {"detail": _OFF}))
async def complete_authorization() -> Response:
    """Finish to authorize a Lark app: always refused.

    The Lark integration is not available on this server, so this always answers 503.
    """
    _refuse()


def _refuse() -> NoReturn:
    raise HTTPException(503, _OFF)
