"""What one command leaves to the next, and what its output becomes."""

import pytest

from deerflow.errors import ConfigError, SandboxError
from deerflow.sandbox.process import OutputBuffer, clean
from deerflow.sandbox.shell import ShellState, check_command, check_environment, parse_state

BEFORE = ShellState("/mnt/user-data/workspace", {"OLD": "1"})
BASE = {"PATH": "/bin", "HOME": "/home"}


def test_a_whole_state_is_read() -> None:
    data = b"\1\0/tmp\0PATH=/bin\0NEW=a=b\nc\0HOME=/else\0_=/x\0PWD=/tmp\0=\0" + b"\0" * 100

    assert parse_state(data, BEFORE, BASE) == ShellState("/tmp", {"NEW": "a=b\nc", "HOME": "/else"})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        b"\1\0",
        b"\1\0relative\0=\0",
        b"\1\0\xff\xfe\0=\0",
        b"\1\0/" + b"x" * 5000 + b"\0=\0",
    ],
)
def test_a_state_that_is_none_changes_nothing(data: bytes) -> None:
    assert parse_state(data, BEFORE, BASE) == BEFORE


def test_exports_that_did_not_fit_are_left_as_they_were() -> None:
    assert parse_state(b"\1\0/tmp\0BIG=" + b"x" * 1000, BEFORE, BASE) == ShellState("/tmp", {"OLD": "1"})


def test_names_that_are_none_are_left_out() -> None:
    data = b"\1\0/tmp\0BASH_FUNC_ls%%=() { x; }\0A B=1\0=2\0nothing\0BASH_ENV=/evil\0OK=1\0=\0"

    assert parse_state(data, BEFORE, BASE).exports == {"OK": "1"}


@pytest.mark.parametrize("command", ["", "  \n", "a\0b", "x" * 200_000, "\ud800"])
def test_commands_that_cannot_be_run_are_refused(command: str) -> None:
    with pytest.raises(SandboxError):
        check_command(command, 5)


def test_a_huge_timeout_is_bounded() -> None:
    assert check_command("true", float("inf")) == 86_400


@pytest.mark.parametrize("environment", [{"A=B": "x"}, {"": "x"}, {"1A": "x"}, {"A": "x\0y"}])
def test_variables_that_no_shell_could_have_are_errors_at_start(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"sandbox\.environment"):
        check_environment(environment)


def test_the_middle_is_left_out() -> None:
    for text, limit, kept in (
        ("a" * 50 + "b" * 50, 60, "a" * 30 + "\n[40 characters left out]\n" + "b" * 30),
        ("short", 20, "short"),
        ("x" * 100, 0, "x" * 100),
    ):
        buffer = OutputBuffer(max_chars=limit)
        buffer.feed(text.encode())
        assert buffer.text() == kept


def test_terminal_sequences_are_taken_out() -> None:
    assert clean("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x00\x08\r\ny\x9b") == "red x\ny"


def test_output_keeps_its_ends_and_says_what_went() -> None:
    buffer = OutputBuffer(max_chars=100)

    for number in range(10_000):
        buffer.feed(f"{number}\n".encode())
    text = buffer.text()

    assert text.startswith("0\n1\n2\n")
    assert text.endswith("9998\n9999\n")
    assert "bytes left out]" in text
    assert len(text) < 150


def test_listeners_get_whole_characters() -> None:
    received: list[str] = []
    buffer = OutputBuffer(max_chars=100, listener=received.append)

    for byte in "ü€😀\n".encode():
        buffer.feed(bytes([byte]))
    buffer.text()

    assert "".join(received) == "ü€😀\n"


def test_a_masked_path_is_not_split_between_pieces() -> None:
    received: list[str] = []
    buffer = OutputBuffer(
        max_chars=100, listener=received.append, mask=lambda text: text.replace("/host/path", "/mnt")
    )

    buffer.feed(b"see /host")
    buffer.feed(b"/path/a\nand /ho")
    buffer.feed(b"st/path")
    buffer.text()

    assert "".join(received) == "see /mnt/a\nand /mnt"


def test_output_without_a_limit_is_whole() -> None:
    buffer = OutputBuffer(max_chars=0)

    buffer.feed(b"x" * 100_000)

    assert buffer.text() == "x" * 100_000
