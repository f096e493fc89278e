import random
import zlib

import orjson
import pytest

from deerflow.domain import RunOptions, RunRequest, TokenUse
from deerflow.storage.encoding import (
    DICTIONARY,
    UNCOMPRESSED_BYTES,
    compress,
    decompress,
    dump_request,
    dump_usage,
    load_request,
    load_usage,
    time_of,
)


@pytest.mark.parametrize("size", [0, 1, UNCOMPRESSED_BYTES, UNCOMPRESSED_BYTES + 1, 400, 8192, 8193, 200_000])
def test_every_body_is_restored(size: int) -> None:
    chance = random.Random(size)
    noise = chance.randbytes(size)
    text = (b'{"content":"deer","additional_kwargs":{}}' * 6000)[:size]

    assert decompress(compress(noise)) == noise
    assert decompress(compress(text)) == text
    assert len(compress(noise)) <= len(noise) + 200


@pytest.mark.parametrize("head", [b"\x78", b"\x58", b"\x78\x9c", b"xyz"])
def test_a_body_that_looks_compressed_is_stored_too(head: bytes) -> None:
    assert decompress(compress(head)) == head
    assert decompress(compress(head + b"\x00" * 50)) == head + b"\x00" * 50
    assert decompress(compress(zlib.compress(head * 100))) == zlib.compress(head * 100)


def test_text_of_the_dictionary_costs_almost_nothing() -> None:
    body = b'{"additional_kwargs":{},"response_metadata":{"finish_reason":"stop","model_name":"'

    assert len(compress(body)) < len(body) / 3


def test_the_first_dictionary_is_frozen() -> None:
    """Stored rows refer to this checksum: add a dictionary, never edit one."""
    assert zlib.adler32(DICTIONARY) == 0xE34B4DED
    assert len(DICTIONARY) < 8192


def test_times_keep_their_microseconds() -> None:
    assert time_of(1_763_200_000_123_457).isoformat() == "2025-11-15T09:46:40.123457+00:00"


def test_fields_of_a_newer_version_are_ignored() -> None:
    data = orjson.loads(dump_request(RunRequest("t1", input={"messages": []})))
    data["from_the_future"] = {"x": 1}
    data["options"]["also_new"] = True

    assert load_request(orjson.dumps(data)) == RunRequest("t1", input={"messages": []})


def test_fields_that_an_older_version_did_not_write_have_their_defaults() -> None:
    assert load_request(b'{"thread_id":"t1","options":{"mode":"pro"}}') == RunRequest(
        "t1", options=RunOptions(mode="pro")
    )


def test_token_use_is_stored() -> None:
    use = TokenUse(input_tokens=1, output_tokens=2, subagent_tokens=3)

    assert load_usage(dump_usage(use)) == use
    assert load_usage(None) == TokenUse()
    assert load_usage('{"input_tokens":5,"new":1}') == TokenUse(input_tokens=5)
