"""Account routes of a server without login: one built-in user, and a clear refusal of every login."""

from typing import Any, NoReturn

from fastapi import APIRouter, HTTPException
from starlette.responses import Response

from deerflow.domain import DEFAULT_USER
from deerflow.gateway.deps import json_response
from deerflow.gateway.openapi import answers, refuses

router = APIRouter(prefix="/v1/auth", tags=["auth"])

_OFF = "Accounts are off on this server: everybody who reaches it is its one user, without login."
_COOKIES = ("access_token", "csrf_token")


def _refusal(code: str) -> dict[str, Any]:
    return {"detail": {"code": code, "message": _OFF}}


@router.get("/me", operation_id="get_current_user", **answers("User"))
async def me() -> Response:
    """Return the user who acts.

    Without login that is the one built-in user, whoever asks.
    """
    return json_response(
        {
            "id": DEFAULT_USER,
            "email": "default@test.local",
            "system_role": "admin",
            "needs_setup": False,
            "oauth_provider": None,
        }
    )


@router.get("/setup-status", operation_id="get_setup_status", **answers("SetupStatus"))
async def setup_status() -> Response:
    """Tell whether the first account has to be created: never, since accounts are off."""
    return json_response({"needs_setup": False, "registration_enabled": False})


@router.get("/providers", operation_id="list_identity_providers", **answers("IdentityProviders"))
async def providers() -> Response:
    """List the identity providers that users can log in with: none, since accounts are off."""
    return json_response({"providers": []})


@router.post("/login/local", **refuses(403, _refusal("provider_not_found"), "AccountError"))
async def login() -> Response:
    """Log in with a password: always refused.

    Accounts are off on this server, so this always answers 403. DeerFlow's login page shows `detail.message`.
    """
    _refuse(403, "provider_not_found")


@router.post(
    "/register",
    operation_id="register_account",
    **refuses(403, _refusal("registration_disabled"), "AccountError"),
)
async def register() -> Response:
    """Create an account: always refused.

    Accounts are off on this server, so this always answers 403. DeerFlow's login page shows `detail.message`.
    """
    _refuse(403, "registration_disabled")


@router.post(
    "/initialize",
    operation_id="initialize_accounts",
    **refuses(409, _refusal("system_already_initialized"), "AccountError"),
)
async def initialize() -> Response:
    """Create the first account: always refused.

    Accounts are off on this server, so this always answers 409. DeerFlow's login page shows `detail.message`.
    """
    _refuse(409, "system_already_initialized")


@router.post("/change-password", **refuses(400, _refusal("provider_not_found"), "AccountError"))
async def change_password() -> Response:
    """Change the password: always refused.

    Accounts are off on this server, so this always answers 400. DeerFlow's login page shows `detail.message`.
    """
    _refuse(400, "provider_not_found")


@router.post("/logout", **answers("LoggedOut"))
async def logout() -> Response:
    """Delete the cookies that an earlier server may have set."""
    response = json_response({"message": "Logged out"})
    for name in _COOKIES:
        response.delete_cookie(name)
    return response


@router.get("/oauth/{provider}", **refuses(404, _refusal("provider_not_found"), "AccountError"))
async def start_oauth(provider: str) -> Response:
    """Log in with an identity provider: always refused.

    Accounts are off on this server, so this always answers 404. DeerFlow's login page shows `detail.message`.
    """
    _refuse(404, "provider_not_found")


@router.get("/callback/{provider}", **refuses(404, _refusal("provider_not_found"), "AccountError"))
async def finish_oauth(provider: str) -> Response:
    """Return from an identity provider: always refused.

    Accounts are off on this server, so this always answers 404. DeerFlow's login page shows `detail.message`.
    """
    _refuse(404, "provider_not_found")


def _refuse(status: int, code: str) -> NoReturn:
    raise HTTPException(status, _refusal(code)["detail"])
