"""Decides which URLs may be fetched for a model: HTTP to public addresses, and what the operator allows."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx2

from deerflow.addresses import Network, check_address, look_up, parse_network
from deerflow.config import WebSettings
from deerflow.errors import AddressRefusedError, ConfigError, WebError

SETTING = "web.allow_cidrs and web.allow_private_hosts"
MAX_URL_CHARS = 4000
_HOST = re.compile(r"(\*\.)?([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")

_NAME = re.compile(r"[a-z0-9_.:-]{1,253}")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host and port to its addresses."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The URLs and addresses that may be fetched."""

    networks: tuple[Network, ...] = ()
    hosts: tuple[str, ...] = ()
    """Hosts that may have private addresses: `name`, `*.name`, each with `:port` or without."""
    resolve: Resolve = look_up
    allows_all: bool = False
    """Whether every address may be called."""

    @classmethod
    def from_settings(cls, settings: WebSettings, *, resolve: Resolve = look_up) -> "AddressPolicy":
        """Create the policy; raise `ConfigError` for an invalid entry."""
        networks = [parse_network(text, setting="web.allow_cidrs") for text in settings.allow_cidrs]
        hosts = [text.strip().lower() for text in settings.allow_private_hosts]
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ConfigError(
                    f"web.allow_private_hosts: '{host}' is no host; use names such as wiki.example.org, "
                    "*.corp.example or 127.0.0.1:8000"
                )
        return cls(tuple(networks), tuple(hosts), resolve)

    def check_url(self, text: str) -> httpx2.URL:
        """Parse a URL as it will be requested; raise `WebError` for one that cannot be fetched."""
        shown = text[:200]
        if len(text) > MAX_URL_CHARS:
            raise WebError(f"The URL has more than {MAX_URL_CHARS} characters.")
        try:
            url = httpx2.URL(text.strip())
            url.host.encode("idna")  # as the resolver does: rejects labels that are too long
        except (httpx2.InvalidURL, ValueError, UnicodeError) as error:
            raise WebError(f"{shown} is no valid URL: {error}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise WebError(
                f"{shown} cannot be fetched: URLs must begin with http:// or https:// and name a host."
            )
        if not _NAME.fullmatch(url.host) or not 0 < (url.port or 80) < 65536:
            raise WebError(f"{shown} is no valid URL: check its host and port.")
        if url.userinfo:
            raise WebError("URLs with a user name or password are not fetched; leave them out.")
        return url.copy_with(fragment=None)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host; raise `AddressRefusedError` if any of its addresses may not be called."""
        found = await self.resolve(host.rstrip("."), port)
        if self.allows_all or self._is_allowed_host(host, port):
            return list(found)
        return [str(check_address(text, allowed=self.networks, setting=SETTING)) for text in found]

    async def check_destination(self, url: httpx2.URL) -> None:
        """Raise `WebError` unless the host of a URL may be fetched, for providers that fetch it elsewhere."""
        try:
            await self.addresses(url.host, url.port or (443 if url.scheme == "https" else 80))
        except AddressRefusedError as error:
            raise WebError(f"{url.host} may not be fetched: {error}") from error
        except (OSError, UnicodeError) as error:
            raise WebError(f"{url.host} cannot be resolved") from error

    def _is_allowed_host(self, host: str, port: int) -> bool:
        name = host.lower().rstrip(".")
        shown = f"[{name}]" if ":" in name else name
        for allowed in self.hosts:
            target = shown if _has_no_port(allowed) else f"{shown}:{port}"
            if target == allowed or (allowed.startswith("*.") and target.endswith(allowed[1:])):
                return True
        return False


def _has_no_port(host: str) -> bool:
    """Return whether an entry of `web.allow_private_hosts` names no port."""
    return host.rpartition(":")[1] == "" or host.endswith("]")
