"""Files that are broken, huge or hostile."""

import os
import time
from pathlib import Path

import pytest

from deerflow.config.yaml_file import parse_yaml, read_yaml
from deerflow.errors import ConfigError


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]")
    return "\n".join(lines)


def merge_bomb(levels: int) -> str:
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: [1, 2\nc: 3", "config.yaml line 3"),
        ("a:\n\tb: 1", "config.yaml line 2"),
        ("a: 1\nb: 2\na: 3", "line 3: the key 'a' stands here a second time"),
        ("x: {a: 1, a: 2}", "line 1: the key 'a' stands here a second time"),
        ("- a\n- b", "it must be `key: value` lines"),
        ("just words", "it must be `key: value` lines"),
        ("a: 1\n---\nb: 2", "config.yaml line 2"),
        ("a: !!python/object/apply:os.system ['true']", "line 1"),
        ("a: !secret x", "the tag !secret is not allowed"),
        ("a: !!set {x, y}", "is not allowed"),
        ("a: !!binary aGVsbG8=", "is not allowed"),
        ("? [a, b]\n: 1", "line 1: a key must be a single word"),
        ("a: &a [*a]", "an alias must not contain itself"),
        ("a: &a {b: *a}", "an alias must not contain itself"),
        ("a: *nobody", "line 1"),
        ("a: {<<: 3}", "`<<` takes a mapping"),
        ("a: \x00", "config.yaml"),
        ("a: " + "9" * 5000, "this value cannot be read"),
        ("a: " + "[" * 5000, "more than 64 levels"),
        ("a: " + "{b: " * 100 + "1" + "}" * 100, "more than 64 levels"),
        ("a:\n" + "".join(" " * n + "- \n" for n in range(1, 200)), "config.yaml"),
        ("a: 'never closed", "config.yaml line 1"),
        ("%YAML 9.9\n---\na: 1", "config.yaml"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text)

    assert said in str(caught.value)


@pytest.mark.parametrize("text", [bomb(12), merge_bomb(12), "a: [" + "x, " * 250_000 + "x]"])
def test_what_would_explode_is_refused_quickly(text: str) -> None:
    start = time.process_time()

    with pytest.raises(ConfigError, match="more than"):
        parse_yaml(text)

    assert time.process_time() - start < 10


def test_aliases_and_merges_of_honest_files_work() -> None:
    text = "base: &base {a: 1, b: 2}\nown: {<<: *base, b: 3}\nboth: {<<: [*base, {a: 9, c: 4}]}"

    data = parse_yaml(text).data

    assert data["own"] == {"a": 1, "b": 3}
    assert data["both"] == {"a": 1, "b": 2, "c": 4}


def test_keys_and_dates_stay_as_they_were_written() -> None:
    data = parse_yaml("on: yes\n8080: 0x10\nnull: ~\nversion: 2024-02-15\nx: 1e3").data

    assert data == {"on": True, "8080": 16, "null": None, "version": "2024-02-15", "x": "1e3"}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null"])
def test_an_empty_file_says_nothing(text: str) -> None:
    assert parse_yaml(text).data == {}


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xef\xbb\xbflog_level: info\r\n")

    assert read_yaml(path).data == {"log_level": "info"}


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"a: 1\nb: caf\xe9\n")

    with pytest.raises(ConfigError, match="line 2: the byte 0xe9 is not UTF-8"):
        read_yaml(path)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with path.open("wb") as file:
        file.truncate(10_000_000_000)

    with pytest.raises(ConfigError, match="larger than 5 MB"):
        read_yaml(path)


def test_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(ConfigError, match="is a folder"):
        read_yaml(tmp_path)
    with pytest.raises(ConfigError, match="is not a regular file"):
        read_yaml(pipe)


def test_lines_are_found_for_values_inside() -> None:
    document = parse_yaml("a: 1\nlist:\n  - x: 1\n  - x: 2\n    y:\n      z: 3\n")

    assert document.line_of(("list", 1, "y", "z")) == 6
    assert document.line_of(("list", 1, "missing")) == 4
    assert document.line_of(("nowhere",)) is None
