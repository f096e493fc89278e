"""Accounts over HTTP while nobody has to log in: one built-in user, and a clear answer to whoever tries."""

from typing import NoReturn

from fastapi import APIRouter, HTTPException
from starlette.responses import Response

from deerflow.domain import DEFAULT_USER
from deerflow.gateway.deps import json_response

router = APIRouter(prefix="/v1/auth", tags=["auth"])

_OFF = "Accounts are off on this server: everybody who reaches it is its one user, without login."
_COOKIES = ("access_token", "csrf_token")


@router.get("/me")
async def me() -> Response:
    """Return the user that acts when nobody has to log in."""
    return json_response(
        {
            "id": DEFAULT_USER,
            "email": "default@test.local",
            "system_role": "admin",
            "needs_setup": False,
            "oauth_provider": None,
        }
    )


@router.get("/setup-status")
async def setup_status() -> Response:
    """Tell that nothing is left to set up."""
    return json_response({"needs_setup": False, "registration_enabled": False})


@router.get("/providers")
async def providers() -> Response:
    """List the identity providers: none without login."""
    return json_response({"providers": []})


@router.post("/login/local")
async def login() -> Response:
    """Refuse a login: there are no accounts."""
    _refuse(403, "provider_not_found")


@router.post("/register")
async def register() -> Response:
    """Refuse a new account: there are none."""
    _refuse(403, "registration_disabled")


@router.post("/initialize")
async def initialize() -> Response:
    """Refuse the first account: there are none."""
    _refuse(409, "system_already_initialized")


@router.post("/change-password")
async def change_password() -> Response:
    """Refuse a new password: the built-in user has none."""
    _refuse(400, "provider_not_found")


@router.post("/logout")
async def logout() -> Response:
    """Forget whatever an earlier server let the browser keep."""
    response = json_response({"message": "Logged out"})
    for name in _COOKIES:
        response.delete_cookie(name)
    return response


@router.get("/oauth/{provider}")
async def start_oauth(provider: str) -> Response:
    """Refuse a login elsewhere: no identity provider is connected."""
    _refuse(404, "provider_not_found")


@router.get("/callback/{provider}")
async def finish_oauth(provider: str) -> Response:
    """Refuse a login elsewhere: no identity provider is connected."""
    _refuse(404, "provider_not_found")


def _refuse(status: int, code: str) -> NoReturn:
    raise HTTPException(status, {"code": code, "message": _OFF})
