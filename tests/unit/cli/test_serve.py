"""A server faces other machines only when that was meant."""

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from deerflow.cli.serve import auth_disabled, gateway_options
from deerflow.config import load_settings
from deerflow.errors import ConfigError
from deerflow.observability import secrets_of


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.9"])
def test_this_machine_needs_no_login_and_its_names_are_checked(host: str) -> None:
    assert gateway_options(host, {}).checks_host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_other_machines_are_refused_until_login_is_off_on_purpose(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with pytest.raises(ConfigError, match="DEER_FLOW_AUTH_DISABLED=1"):
        gateway_options(host, {})

    options = gateway_options(host, {"DEER_FLOW_AUTH_DISABLED": "1"})

    assert not options.checks_host
    assert any("AUTHENTICATION IS OFF" in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"DEER_FLOW_AUTH_DISABLED": "1"}, True),
        ({"DEER_FLOW_AUTH_DISABLED": "true"}, False),
        ({"DEER_FLOW_AUTH_DISABLED": "0"}, False),
        ({}, False),
        ({"DEER_FLOW_AUTH_DISABLED": "1", "DEER_FLOW_ENV": "prod"}, False),
        ({"DEER_FLOW_AUTH_DISABLED": "1", "DEER_FLOW_ENV": "Production"}, False),
        ({"DEER_FLOW_AUTH_DISABLED": "1", "ENVIRONMENT": "production"}, False),
        ({"DEER_FLOW_AUTH_DISABLED": "1", "DEER_FLOW_ENV": "dev", "ENVIRONMENT": "production"}, True),
    ],
)
def test_production_does_not_listen_to_the_switch(env: Mapping[str, str], expected: bool) -> None:
    assert auth_disabled(env) is expected


def test_pages_elsewhere_are_listed_by_origin() -> None:
    env = {
        "GATEWAY_CORS_ORIGINS": " https://a.example.org/ , http://localhost:3000,",
        "GATEWAY_ENABLE_DOCS": "False",
    }

    options = gateway_options("127.0.0.1", env)

    assert options.origins == ("https://a.example.org", "http://localhost:3000")
    assert not options.has_docs


def test_trusted_proxies_are_listed_by_address_or_network() -> None:
    options = gateway_options("127.0.0.1", {"GATEWAY_TRUSTED_PROXIES": "10.0.0.5, 172.18.0.0/16,::1"})

    assert [str(network) for network in options.trusted_proxies] == [
        "10.0.0.5/32",
        "172.18.0.0/16",
        "::1/128",
    ]
    assert gateway_options("127.0.0.1", {}).trusted_proxies == ()


@pytest.mark.parametrize("proxies", ["*", "proxy.lan", "10.0.0.5/8", "10.0.0.5;10.0.0.6"])
def test_a_trusted_proxy_that_is_no_address_is_refused(proxies: str) -> None:
    with pytest.raises(ConfigError, match="GATEWAY_TRUSTED_PROXIES"):
        gateway_options("127.0.0.1", {"GATEWAY_TRUSTED_PROXIES": proxies})


@pytest.mark.parametrize(
    "origins",
    [
        "*",
        "null",
        "a.example.org",
        "https://*.example.org",
        "https://a/b",
        "https://u@a",
        "ftp://a",
        "http://a:99999",
    ],
)
def test_an_origin_that_would_let_everybody_in_is_refused(origins: str) -> None:
    with pytest.raises(ConfigError, match="GATEWAY_CORS_ORIGINS"):
        gateway_options("127.0.0.1", {"GATEWAY_CORS_ORIGINS": origins})


def test_the_working_folder_is_no_secret(tmp_path: Path) -> None:
    env = {"PWD": str(tmp_path), "OLDPWD": "/somewhere", "DB_PWD": "hunter2-hunter2"}

    assert list(secrets_of(load_settings(env=env, cwd=tmp_path))) == ["hunter2-hunter2"]
