"""Decides which network addresses the server may connect to on behalf of others: public ones only.

Every feature that connects to an address given from outside (webhooks, web pages, MCP servers, the sandbox
proxy) uses this module, so that there is one list to maintain. Check the address that is dialled, not
the name: a name can resolve to another address the second time.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Sequence

from deerflow.errors import AddressRefusedError, ConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

ALLOW_CIDRS = "runs.webhook_allow_cidrs"
"""The setting that allows more networks for addresses received over HTTP."""
_GLOBAL_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")
"""The only part of IPv6 that IANA allocates to public hosts."""
_SPECIAL: dict[str, str] = {
    # IANA IPv4 Special-Purpose Address Registry, and IPv4 Multicast Address Space Registry
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by carriers and clouds",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "IETF protocol assignments",
    "192.0.2.0/24": "documentation",
    "192.31.196.0/24": "AS112",
    "192.52.193.0/24": "multicast tunnels",
    "192.88.99.0/24": "6to4 relays",
    "192.168.0.0/16": "private",
    "192.175.48.0/24": "AS112",
    "198.18.0.0/15": "benchmarking",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    # public by number, but served by the cloud's host machine: credentials and configuration (Azure)
    "168.63.129.16/32": "a cloud's own services",
    # IANA IPv6 Special-Purpose Address Registry, the entries within 2000::/3
    "2001::/23": "IETF protocol assignments (Teredo among them)",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "2620:4f:8000::/48": "AS112",
    "3fff::/20": "documentation",
}
_SPECIAL_NETWORKS = tuple((ipaddress.ip_network(text), purpose) for text, purpose in _SPECIAL.items())


def special_purpose(address: Address) -> str | None:
    """Return what an address is reserved for; None for a public address."""
    address = _unmapped(address)
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST_V6:
        return "no public IPv6 address"  # private, link-local, site-local, NAT64, multicast, unassigned
    found = (purpose for network, purpose in _SPECIAL_NETWORKS if _holds(network, address))
    return next(found, None)


def check_address(text: str, *, allowed: Iterable[Network] = (), setting: str) -> Address:
    """Parse `text` as an address; raise `AddressRefusedError` unless it is public or allowed.

    Args:
        allowed: Networks that the operator allows although they are not public.
        setting: The setting that allows more networks, for the error message.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if any(_holds(network, _unmapped(address)) for network in allowed):
        return address
    purpose = special_purpose(address)
    if purpose is not None:
        raise AddressRefusedError(f"{text} is a private or reserved address ({purpose}); see {setting}")
    return address


def parse_network(text: str, *, setting: str) -> Network:
    """Parse a CIDR range from a setting."""
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise ConfigError(f"{setting}: '{text}' is no range such as 10.1.0.0/16") from error


async def look_up(host: str, port: int) -> Sequence[str]:
    """Resolve a host with the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def checked_addresses(
    host: str, port: int, *, allowed: Iterable[Network] = (), setting: str
) -> list[str]:
    """Resolve a host and check its addresses; one refused address refuses them all."""
    permitted = tuple(allowed)
    return [
        str(check_address(text, allowed=permitted, setting=setting)) for text in await look_up(host, port)
    ]


def _unmapped(address: Address) -> Address:
    """Return the IPv4 address in `::ffff:a.b.c.d`, since the system connects to that one."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _holds(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network
