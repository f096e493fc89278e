"""Authentication settings."""

from typing import Literal

from pydantic import Field

from deerflow.config.section import Section


class LocalAuthSettings(Section):
    """Accounts with a password, kept here."""

    allow_registration: bool = Field(True, description="Anybody who reaches the page may make an account.")


class OidcProviderSettings(Section):
    """A provider of sign-in by OpenID Connect."""

    display_name: str = Field(description="What the button says.")
    issuer: str = Field(description="The provider's address.")
    client_id: str = Field(description="Who we are to it.")
    client_secret: str | None = Field(None, description="What proves it.")
    redirect_uri: str | None = Field(None, description="Where it sends people back to.")
    scopes: tuple[str, ...] = Field(("openid", "email", "profile"), description="What we ask for.")
    token_endpoint_auth_method: Literal["client_secret_post", "client_secret_basic", "none"] = Field(
        "client_secret_post", description="How the secret is sent."
    )
    auto_create_users: bool = Field(True, description="Make an account at the first sign-in.")
    require_verified_email: bool = Field(
        True, description="Refuse addresses that the provider has not checked."
    )
    allowed_email_domains: tuple[str, ...] = Field((), description="Domains that may sign in; empty: all.")
    admin_emails: tuple[str, ...] = Field((), description="Who becomes an administrator.")
    pkce_enabled: bool = Field(True, description="Use PKCE.")
    nonce_enabled: bool = Field(True, description="Use a nonce.")
    authorization_endpoint: str | None = Field(None, description="Absent: as the provider announces it.")
    token_endpoint: str | None = Field(None, description="Absent: as the provider announces it.")
    userinfo_endpoint: str | None = Field(None, description="Absent: as the provider announces it.")
    jwks_uri: str | None = Field(None, description="Absent: as the provider announces it.")


class OidcSettings(Section):
    """Sign-in by OpenID Connect."""

    enabled: bool = Field(False, description="Offer it.")
    frontend_base_url: str | None = Field(None, description="The page's address as people see it.")
    providers: dict[str, OidcProviderSettings] = Field({}, description="Providers by a short name.")


class AuthSettings(Section):
    """How people sign in."""

    local: LocalAuthSettings = Field(LocalAuthSettings.model_construct(), description="Accounts kept here.")
    oidc: OidcSettings = Field(OidcSettings.model_construct(), description="Accounts kept elsewhere.")
