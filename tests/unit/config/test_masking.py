"""Secrets of MCP servers are never shown, and come back whole."""

from typing import Any

import pytest

from deerflow.config.secrets import MASK, hidden_values, masked_server, unmasked_server
from deerflow.errors import InvalidInputError

ENTRY: dict[str, Any] = {
    "command": "npx",
    "args": ["--api-key", "one", "--verbose", "--password=two", "--key", "$KEY", "https://u:three@h/x?token=four&a=b"],
    "env": {"A": "five", "B": "${VAR}", "C": ""},
    "headers": {"X": "six"},
    "oauth": {"client_id": "me", "client_secret": "seven", "extra_token_params": {"p": "eight"}},
    "tools": {"search": {"api_key": "nine", "limit": 3}},
    "timeout": 5,
}  # fmt: skip


def test_nothing_secret_is_shown() -> None:
    shown = masked_server(ENTRY)

    for word in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"):
        assert word not in str(shown)
    assert shown["args"][4:6] == ["--key", "$KEY"]
    assert shown["env"] == {"A": MASK, "B": "${VAR}", "C": ""}
    assert (shown["command"], shown["timeout"], shown["oauth"]["client_id"]) == ("npx", 5, "me")


def test_what_comes_back_as_it_was_shown_is_what_it_was() -> None:
    sent = masked_server(ENTRY)
    sent["env"]["NEW"] = "value"
    sent["args"] = [*sent["args"], "--more"]

    kept = unmasked_server("s", sent, ENTRY)

    assert kept == {
        **ENTRY,
        "env": {**ENTRY["env"], "NEW": "value"},
        "args": [*ENTRY["args"], "--more"],
    }


@pytest.mark.parametrize(
    "sent",
    [
        {"env": {"OTHER": MASK}},
        {"args": ["--token", MASK]},
        {"url": f"https://x/?key={MASK}"},
        {"headers": {"X": f"Bearer {MASK}"}},
    ],
)
def test_a_mask_without_a_value_behind_it_is_refused(sent: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="there is no value to keep"):
        unmasked_server("s", sent, ENTRY)


@pytest.mark.parametrize(
    "change",
    [
        {"url": "https://elsewhere.example/mcp"},
        {"url": "http://example.org/mcp"},
        {"url": "$ELSEWHERE"},
        {"oauth": {"token_url": "https://elsewhere.example/t", "client_secret": MASK}},
    ],
)
def test_secrets_of_one_address_do_not_go_to_another(change: dict[str, Any]) -> None:
    known = {
        "url": "https://example.org/mcp",
        "headers": {"Authorization": "Bearer one"},
        "oauth": {"token_url": "https://login.example.org/t", "client_secret": "two"},
    }
    shown = masked_server(known)

    with pytest.raises(InvalidInputError, match=r"(headers\.Authorization|oauth\.client_secret) is hidden"):
        unmasked_server("s", {**shown, **change}, known)

    same_host = {**shown, "url": "https://example.org/other"}
    assert unmasked_server("s", same_host, known) == {**known, "url": "https://example.org/other"}


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "https://example.org/mcp?apikey=the-value"},
        {"args": ["--apikey=the-value"]},
        {"args": ["--authtoken", "the-value"]},
        {"oauth": {"clientsecret": "the-value"}},
    ],
)
def test_names_in_one_word_are_known_too(entry: dict[str, Any]) -> None:
    assert "the-value" not in str(masked_server(entry))
    assert list(hidden_values(entry)) == ["the-value"]


def test_a_server_of_another_name_gets_no_secrets() -> None:
    with pytest.raises(InvalidInputError):
        unmasked_server("copy", masked_server(ENTRY), None)


def test_what_is_hidden_is_known_for_logs_to_leave_out() -> None:
    entry = {
        "command": "server",
        "args": ["--token=from-a-flag", "--api-key", "behind-a-flag", "--root", "/data"],
        "env": {"ANY": "from-the-environment", "MODE": "on"},
        "url": "https://user:pass-word@example.org/mcp?api_key=in-the-address&page=1",
        "headers": {"X-Any": "from-a-header"},
        "oauth": {"client_secret": "client-secret", "client_id": "deerflow"},
    }

    assert set(hidden_values(entry)) == {
        "from-a-flag",
        "behind-a-flag",
        "from-the-environment",
        "pass-word",
        "in-the-address",
        "from-a-header",
        "client-secret",
    }


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/s/Zm9vYmFyMTIzNDU2Nzg5/mcp", "/s/********/mcp"),
        ("/api/2f1c77a9-0b5f-4c77-a90b-5f1c77a90b5f", "/api/********"),
        ("/hooks/sk_live_9a8b7c6d5e4f3a2b1c", "/hooks/********"),
        ("/v1/streamable-http-endpoint/mcp-server-2024", "/v1/streamable-http-endpoint/mcp-server-2024"),
        ("/documentation/configuration", "/documentation/configuration"),
    ],
)
def test_tokens_in_the_path_of_an_address_are_hidden_and_words_are_not(path: str, shown: str) -> None:
    entry = {"url": f"https://example.org{path}"}

    assert masked_server(entry) == {"url": f"https://example.org{shown}"}
    assert unmasked_server("s", masked_server(entry), entry) == entry
    assert bool(list(hidden_values(entry))) == (path != shown)
