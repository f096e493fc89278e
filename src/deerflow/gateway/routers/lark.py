"""The Lark integration over HTTP while it is not there: its status, and clear refusals."""

from typing import NoReturn

from fastapi import APIRouter, HTTPException
from starlette.responses import Response

from deerflow.gateway.deps import json_response

router = APIRouter(prefix="/integrations/lark", tags=["integrations"])

_OFF = "The Lark integration is not available on this server."


@router.get("/status")
async def status() -> Response:
    """Tell what of the integration is there."""
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


@router.post("/install")
async def install() -> Response:
    """Install the integration's skills."""
    _refuse()


@router.post("/config/start")
async def start_configuration() -> Response:
    """Start to register an app."""
    _refuse()


@router.post("/config/complete")
async def complete_configuration() -> Response:
    """Finish to register an app."""
    _refuse()


@router.post("/config/credentials")
async def set_credentials() -> Response:
    """Set the credentials of an app that is registered already."""
    _refuse()


@router.post("/auth/start")
async def start_authorization() -> Response:
    """Start to authorize the app for the user."""
    _refuse()


@router.post("/auth/complete")
async def complete_authorization() -> Response:
    """Finish to authorize the app for the user."""
    _refuse()


def _refuse() -> NoReturn:
    raise HTTPException(503, _OFF)
