"""Log lines: their form, and what never stands in them."""

import asyncio
import io
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.loop_watch import LoopWatch

from deerflow.config import load_settings
from deerflow.observability import configure_logging, learn_secrets, secrets_of
from deerflow.observability.logs import LogFormat, Redactor, StreamRedactor, mark_logs

logger = logging.getLogger("deerflow.test")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines_of(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_text_lines_have_level_logger_and_message() -> None:
    stream = io.StringIO()
    configure_logging("info", "text", stream=stream)

    logger.debug("not this")
    logger.info("run %s started", "r1", extra={"trace_id": "t1"})

    (line,) = lines_of(stream)
    assert line.endswith("INFO    deerflow.test: run r1 started trace_id=t1")


def test_json_lines_are_objects_with_extra_fields() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)

    logger.warning(
        "run %s\nstopped", "r1", extra={"run_id": "r1", "count": 3, "what": {"api_key": "abcdefgh"}}
    )

    line = json.loads(stream.getvalue())
    assert (line["level"], line["message"], line["count"]) == ("warning", "run r1\nstopped", 3)
    assert line["what"] == {"api_key": "(hidden)"}
    assert line["time"].endswith("+00:00")


def test_configuring_again_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging("info", "text", stream=first)
    configure_logging("error", "text", stream=second)

    logger.warning("too quiet")
    logger.error("heard")

    assert first.getvalue() == ""
    assert len(lines_of(second)) == 1


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "message",
    [
        "key sk-proj-abcdefghijklmnop was refused",
        "Authorization: Bearer abcdefgh.ijklmnop",
        "calling https://user:hunter2hunter2@example.org/path",
        "api_key=abcdefghijkl&x=1",
        "{'client_secret': 'abcdefghijkl'}",
        '{"password": "abcdefghijkl"}',
        "token: abcdefghijkl",
        "known-to-us here",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijkl",
        "ghp_abcdefghijklmnopqrst",
    ],
)
def test_secrets_are_taken_out(form: LogFormat, message: str) -> None:
    stream = io.StringIO()
    configure_logging("info", form, secrets=["known-to-us"], stream=stream)

    logger.info("%s", message)
    try:
        raise ValueError(message)
    except ValueError:
        logger.exception("failed")

    text = stream.getvalue()
    assert "(hidden)" in text
    for secret in ("abcdefgh", "hunter2hunter2", "known-to-us"):
        assert secret not in text


@pytest.mark.parametrize("unit", ["a-", "key=", "://", "key ", "eyJ.", "token"])
def test_a_huge_message_is_cleaned_quickly(unit: str) -> None:
    stream = io.StringIO()
    configure_logging("info", "text", stream=stream)
    start = time.process_time()

    logger.info("%s", unit * 100_000)

    assert time.process_time() - start < 5


def test_ordinary_words_stay() -> None:
    stream = io.StringIO()
    configure_logging("info", "text", stream=stream)

    logger.info("max_tokens=200000 model: claude-sonnet-4-5 thread: 0f8fad5b-d9cb-469f key=a")

    assert "(hidden)" not in stream.getvalue()


def test_a_line_break_in_what_was_sent_makes_no_new_line() -> None:
    stream = io.StringIO()
    configure_logging("info", "text", stream=stream)

    logger.info("title is %s", "x\n2026-01-01 00:00:00 ERROR   deerflow: forged\x1b[31m\u2028")

    assert len(lines_of(stream)) == 1
    assert "\x1b" not in stream.getvalue()


def test_a_traceback_is_kept() -> None:
    stream = io.StringIO()
    configure_logging("info", "text", stream=stream)

    try:
        raise KeyError("missing")
    except KeyError:
        logger.exception("run failed")

    assert "KeyError: 'missing'" in lines_of(stream)[-1]
    assert len(lines_of(stream)) > 3


def test_settings_give_their_secrets(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "models: [{name: a, use: 'x:Y', model: m, api_key: plain-secret}, "
        "{name: b, use: 'x:Y', model: m, api_key: $UNSET}]\nnonsense: 1\n"
    )
    loaded = load_settings(env={"OTHER_TOKEN": "env-secret"}, cwd=tmp_path)
    stream = io.StringIO()
    configure_logging("info", "text", secrets=secrets_of(loaded), stream=stream)

    logger.info("plain-secret and env-secret")

    text = stream.getvalue()
    assert "plain-secret" not in text
    assert "env-secret" not in text


async def test_lines_carry_the_ids_of_their_task_and_of_no_other() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)

    async def run(name: str) -> None:
        mark_logs(run_id=name, trace_id=f"trace of {name}")
        await asyncio.sleep(0)
        await asyncio.to_thread(logger.info, "from a thread")
        logger.info("from the task", extra={"run_id": "its own"})

    await asyncio.gather(run("a"), run("b"))
    logger.info("outside")

    lines = [json.loads(line) for line in lines_of(stream)]
    assert sorted(line["run_id"] for line in lines if "thread" in line["message"]) == ["a", "b"]
    assert {line["run_id"] for line in lines if "task" in line["message"]} == {"its own"}
    assert {line["trace_id"] for line in lines if "task" in line["message"]} == {"trace of a", "trace of b"}
    assert "run_id" not in lines[-1]


def test_secrets_that_come_later_are_kept_out_too() -> None:
    stream = io.StringIO()
    configure_logging("info", "text", secrets=["first"], stream=stream)

    learn_secrets(["second-one", ""])
    logger.info("first second-one third")

    assert lines_of(stream)[0].endswith("(hidden) (hidden) third")


async def test_redacting_long_texts_from_outside_does_not_hold_the_loop() -> None:
    redact = Redactor([f"{n:x}secret-{n * 7919:x}" for n in range(200)])
    texts = [pattern * (1_000_000 // len(pattern)) for pattern in ("-eyJ", "key", "x", "a b=", "://", "sk-")]

    for text in texts:
        async with LoopWatch():
            redact.known(text)
        async with LoopWatch():
            redact(text)


def test_known_secrets_go_from_short_and_long_texts_in_either_spelling() -> None:
    redact = Redactor(["p@ss/word", "p@ss/word-longer"])

    for filler in ("", "x" * 10_000):
        text = f"{filler} p@ss/word-longer p%40ss%2Fword token=abcdefgh"
        assert redact.known(text) == f"{filler} (hidden) (hidden) token=abcdefgh"
    assert redact("token=abcdefgh") == "token=(hidden)"


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_secret_that_comes_in_pieces_is_never_shown(size: int) -> None:
    stream = StreamRedactor(Redactor(["canary-1234", "other-secret"]))
    text = "say canary-1234, canary-12 and other-secret; can"

    shown = [stream(text[start : start + size]) for start in range(0, len(text), size)]

    assert "".join(shown) + stream.rest() == "say (hidden), canary-12 and (hidden); can"


def test_every_secret_of_the_settings_is_known(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        """
models:
  - name: m
    use: langchain_openai:ChatOpenAI
    model: m
    base_url: https://user:in-the-login@example.org/v1?api_key=in-the-query
    default_headers: {X-Any: in-a-header, Authorization: Bearer in-a-scheme, User-Agent: not-hidden}
acp_agents:
  a: {command: x, args: [--token=in-an-argument], description: d, env: {A: in-the-environment}}
extensions:
  mcpServers:
    s: {url: "https://example.org/s/inThePath1234567890", headers: {A: of-a-server}}
"""
    )
    loaded = load_settings(tmp_path / "config.yaml", env={"SOME_TOKEN": "of-the-process"}, cwd=tmp_path)

    known = set(secrets_of(loaded))

    assert known >= {
        "in-the-login",
        "in-the-query",
        "in-a-header",
        "in-a-scheme",
        "in-an-argument",
        "in-the-environment",
        "inThePath1234567890",
        "of-a-server",
        "of-the-process",
    }
    assert not any("not-hidden" in secret for secret in known)
