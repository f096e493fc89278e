"""Selects the proxy of a request to a model server from the standard environment variables."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit


def proxy_for(url: str, env: Mapping[str, str]) -> str | None:
    """Return the proxy that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` select for `url`."""
    parts = urlsplit(url)
    proxy = _variable(env, f"{parts.scheme}_proxy") or _variable(env, "all_proxy")
    host = parts.hostname or ""
    if not proxy or _is_exempt(host, parts.port, _variable(env, "no_proxy")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(env: Mapping[str, str], name: str) -> str:
    return (env.get(name) or env.get(name.upper()) or "").strip()


def _is_exempt(host: str, port: int | None, no_proxy: str) -> bool:
    for entry in filter(None, (part.strip().lower() for part in no_proxy.split(","))):
        if entry == "*":
            return True
        name, _, wanted_port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
        if wanted_port and wanted_port != str(port):
            continue
        if _is_within(host, name):
            return True
    return False


def _is_within(host: str, name: str) -> bool:
    suffix = name.removeprefix("*").removeprefix(".")
    if host == suffix or host.endswith(f".{suffix}"):
        return True
    try:
        return ip_address(host) in ip_network(name.strip("[]"), strict=False)
    except ValueError:  # one of them is a host name, not an IP address
        return False
