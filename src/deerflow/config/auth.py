"""Settings of sign-in and authorization."""

from typing import Any, Literal

from pydantic import Field

from deerflow.config.section import Section, section


class ProviderSettings(Section):
    """A class that decides about requests."""

    use: str = Field(description="The class as `module:Class`.")
    config: dict[str, Any] = Field({}, description="Keyword arguments of the class.")


class LocalAuthSettings(Section):
    """Accounts with a password, stored in DeerFlow's database."""

    allow_registration: bool = Field(True, description="Allow anybody who reaches the page to register.")


class OidcProviderSettings(Section):
    """An OpenID Connect provider."""

    display_name: str = Field(description="Label of the sign-in button.")
    issuer: str = Field(description="Issuer URL of the provider.")
    client_id: str = Field(description="Client id issued by the provider.")
    client_secret: str | None = Field(None, description="Client secret issued by the provider.")
    redirect_uri: str | None = Field(None, description="Redirect URI registered with the provider.")
    scopes: tuple[str, ...] = Field(("openid", "email", "profile"), description="Scopes to request.")
    token_endpoint_auth_method: Literal["client_secret_post", "client_secret_basic", "none"] = Field(
        "client_secret_post", description="How the client secret is sent to the token endpoint."
    )
    auto_create_users: bool = Field(True, description="Create an account at a user's first sign-in.")
    require_verified_email: bool = Field(
        True, description="Reject users whose email address the provider has not verified."
    )
    allowed_email_domains: tuple[str, ...] = Field(
        (), description="Email domains that may sign in. Empty: all."
    )
    admin_emails: tuple[str, ...] = Field((), description="Email addresses of administrators.")
    pkce_enabled: bool = Field(True, description="Use PKCE.")
    nonce_enabled: bool = Field(True, description="Use a nonce.")
    authorization_endpoint: str | None = Field(None, description="Absent: from the provider's metadata.")
    token_endpoint: str | None = Field(None, description="Absent: from the provider's metadata.")
    userinfo_endpoint: str | None = Field(None, description="Absent: from the provider's metadata.")
    jwks_uri: str | None = Field(None, description="Absent: from the provider's metadata.")


class OidcSettings(Section):
    """Sign-in with OpenID Connect."""

    enabled: bool = Field(False, description="Offer it.")
    frontend_base_url: str | None = Field(None, description="Public URL of the page.")
    providers: dict[str, OidcProviderSettings] = Field({}, description="Providers by a short name.")


class AuthSettings(Section):
    """Sign-in."""

    local: LocalAuthSettings = section(LocalAuthSettings)
    oidc: OidcSettings = section(OidcSettings)


class AuthorizationSettings(Section):
    """Permissions on tools, routes and models by role."""

    enabled: bool = Field(False, description="Ask `provider` before each use.")
    fail_closed: bool = Field(True, description="Deny when the provider fails.")
    default_role: str = Field("user", description="Role of users without one.")
    provider: ProviderSettings | None = Field(None, description="Class that decides by role.")
