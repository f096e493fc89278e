"""Routes of features that this server does not have, for DeerFlow's page: empty answers and clear refusals.

Accounts, chat channels, the Lark integration, background tasks of MCP servers and the browser.
"""

from typing import Annotated, Any, NoReturn

from fastapi import APIRouter, HTTPException, Query, WebSocket
from starlette.responses import Response

from deerflow.domain import DEFAULT_USER
from deerflow.errors import NotFoundError
from deerflow.gateway.deps import ThreadPath, json_response
from deerflow.gateway.openapi import answers, refuses

auth_router = APIRouter(prefix="/v1/auth", tags=["auth"])
browser_router = APIRouter(prefix="/threads/{thread_id}/browser", tags=["browser"])
channels_router = APIRouter(prefix="/channels", tags=["channels"])
lark_router = APIRouter(prefix="/integrations/lark", tags=["integrations"])
mcp_tasks_router = APIRouter(prefix="/threads/{thread_id}/mcp-tasks", tags=["mcp tasks"])

_NO_ACCOUNTS = "Accounts are off on this server: everybody who reaches it is its one user, without login."
_NO_BROWSER = "Browser control is not available on this server."
_NO_LARK = "The Lark integration is not available on this server."
_NO_MCP_TASK = {"detail": "MCP task 'm1' not found", "code": "not_found"}
_COOKIES = ("access_token", "csrf_token")
_CLOSE_UNAVAILABLE = 4501


def _refuse_always(
    router: APIRouter,
    path: str,
    name: str,
    description: str,
    *,
    status: int,
    detail: Any,
    schema: str = "Error",
) -> None:
    """Add a `POST` route that always refuses."""

    async def refuse() -> Response:
        raise HTTPException(status, detail)

    described = refuses(status, {"detail": detail}, schema)
    router.post(path, operation_id=name, description=description, **described)(refuse)


@auth_router.get("/me", **answers("User"))
async def get_current_user() -> Response:
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


@auth_router.get("/setup-status", **answers("SetupStatus"))
async def get_setup_status() -> Response:
    """Tell whether the first account has to be created: never, since accounts are off."""
    return json_response({"needs_setup": False, "registration_enabled": False})


@auth_router.get("/providers", **answers("IdentityProviders"))
async def list_identity_providers() -> Response:
    """List the identity providers that users can log in with: none, since accounts are off."""
    return json_response({"providers": []})


for _path, _name, _action, _status, _code in (
    ("/login/local", "login", "Log in with a password", 403, "provider_not_found"),
    ("/register", "register_account", "Create an account", 403, "registration_disabled"),
    ("/initialize", "initialize_accounts", "Create the first account", 409, "system_already_initialized"),
    ("/change-password", "change_password", "Change the password", 400, "provider_not_found"),
):
    _refuse_always(
        auth_router,
        _path,
        _name,
        f"{_action}: always refused.\n\nAccounts are off on this server, so this always answers {_status}. "
        "DeerFlow's login page shows `detail.message`.",
        status=_status,
        detail={"code": _code, "message": _NO_ACCOUNTS},
        schema="AccountError",
    )


@auth_router.post("/logout", **answers("LoggedOut"))
async def logout() -> Response:
    """Delete the cookies that an earlier server may have set."""
    response = json_response({"message": "Logged out"})
    for name in _COOKIES:
        response.delete_cookie(name)
    return response


_NO_PROVIDER = {"code": "provider_not_found", "message": _NO_ACCOUNTS}


@auth_router.get("/oauth/{provider}", **refuses(404, {"detail": _NO_PROVIDER}, "AccountError"))
async def start_oauth(provider: str) -> Response:
    """Log in with an identity provider: always refused.

    Accounts are off on this server, so this always answers 404. DeerFlow's login page shows `detail.message`.
    """
    raise HTTPException(404, _NO_PROVIDER)


@auth_router.get("/callback/{provider}", **refuses(404, {"detail": _NO_PROVIDER}, "AccountError"))
async def finish_oauth(provider: str) -> Response:
    """Return from an identity provider: always refused.

    Accounts are off on this server, so this always answers 404. DeerFlow's login page shows `detail.message`.
    """
    raise HTTPException(404, _NO_PROVIDER)


@browser_router.post("/navigate", **refuses(501, {"detail": _NO_BROWSER}))
async def navigate_browser(thread_id: ThreadPath) -> Response:
    """Open a page in the thread's browser: always refused.

    Browser control is not available on this server, so this always answers 501.
    """
    raise HTTPException(501, _NO_BROWSER)


@browser_router.websocket("/stream")
async def stream_browser(socket: WebSocket, thread_id: str) -> None:
    """Show the thread's browser."""
    await socket.accept()  # a page can read the close code only of a socket that was open
    await socket.send_json({"type": "error", "message": _NO_BROWSER})
    await socket.close(_CLOSE_UNAVAILABLE, _NO_BROWSER)


def _no_channel(provider: str) -> str:
    return f"{provider} cannot be connected: this server connects to no chat service"


def _refuse_channel(provider: str) -> NoReturn:
    raise HTTPException(503, _no_channel(provider[:80]))


_REFUSES_CHANNEL = refuses(503, {"detail": _no_channel("slack")})


@channels_router.get("/providers", **answers("ChannelProviders"))
async def list_channel_providers() -> Response:
    """List the chat services that can be connected: none.

    Pages hide the whole group while `enabled` is false.
    """
    return json_response({"enabled": False, "providers": []})


@channels_router.get("/connections", **answers("ChannelConnections"))
async def list_channel_connections() -> Response:
    """List the user's connected accounts of chat services: none."""
    return json_response({"connections": []})


@channels_router.delete(
    "/connections/{connection_id}",
    **refuses(404, {"detail": "channel connection 'c1' not found", "code": "not_found"}),
)
async def disconnect_channel(connection_id: str) -> Response:
    """Disconnect an account of a chat service: always refused.

    This server connects to no chat service, so this always answers 404.
    """
    raise NotFoundError("channel connection", connection_id[:80])


@channels_router.post("/{provider}/connect", **_REFUSES_CHANNEL)
async def connect_channel(provider: str) -> Response:
    """Connect an account of a chat service: always refused.

    This server connects to no chat service, so this always answers 503.
    """
    _refuse_channel(provider)


@channels_router.post("/{provider}/runtime-config", **_REFUSES_CHANNEL)
async def set_channel_config(provider: str) -> Response:
    """Set the credentials of a chat service: always refused.

    This server connects to no chat service, so this always answers 503.
    """
    _refuse_channel(provider)


@channels_router.delete("/{provider}/runtime-config", **_REFUSES_CHANNEL)
async def delete_channel_config(provider: str) -> Response:
    """Delete the credentials of a chat service: always refused.

    This server connects to no chat service, so this always answers 503.
    """
    _refuse_channel(provider)


@lark_router.get("/status", **answers("LarkStatus"))
async def get_lark_status() -> Response:
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
            "cli": {"available": False, "path": None, "version": None, "error": _NO_LARK},
            "auth": {"status": "unavailable", "message": _NO_LARK, "user": None, "verified": False},
            "sandbox_runtime_mode": "none",
            "sandbox_runtime_ready": False,
            "sandbox_runtime_detail": _NO_LARK,
        }
    )


for _path, _name, _action in (
    ("/install", "install_lark", "Install the Lark integration"),
    ("/config/start", "start_lark_configuration", "Start to register an app with Lark"),
    ("/config/complete", "complete_lark_configuration", "Finish to register an app with Lark"),
    ("/config/credentials", "set_lark_credentials", "Set the credentials of a Lark app"),
    ("/auth/start", "start_lark_authorization", "Start to authorize a Lark app"),
    ("/auth/complete", "complete_lark_authorization", "Finish to authorize a Lark app"),
):
    _refuse_always(
        lark_router,
        _path,
        _name,
        f"{_action}: always refused.\n\n"
        "The Lark integration is not available on this server, so this always answers 503.",
        status=503,
        detail=_NO_LARK,
    )


@mcp_tasks_router.get("", **answers("list[McpTask]"))
async def list_mcp_tasks(thread_id: ThreadPath, limit: Annotated[int, Query(ge=1, le=100)] = 50) -> Response:
    """List a thread's background tasks of MCP servers: none, since this server starts none."""
    return json_response([])


@mcp_tasks_router.get("/{task_id}", **refuses(404, _NO_MCP_TASK))
async def get_mcp_task(thread_id: ThreadPath, task_id: str) -> Response:
    """Return a background task of an MCP server: always refused.

    This server starts none, so this always answers 404.
    """
    raise NotFoundError("MCP task", task_id[:80])


@mcp_tasks_router.post("/{task_id}/cancel", **refuses(404, _NO_MCP_TASK))
async def cancel_mcp_task(thread_id: ThreadPath, task_id: str) -> Response:
    """Cancel a background task of an MCP server: always refused.

    This server starts none, so this always answers 404.
    """
    raise NotFoundError("MCP task", task_id[:80])
