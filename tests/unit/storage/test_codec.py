import random
import zlib

import pytest

from deerflow.storage.sql.codec import TINY, pack, time_of, unpack
from deerflow.storage.sql.compression_dictionary import DICTIONARIES, NEWEST


@pytest.mark.parametrize("size", [0, 1, TINY, TINY + 1, 400, 8192, 8193, 200_000])
def test_every_body_comes_back(size: int) -> None:
    chance = random.Random(size)
    noise = chance.randbytes(size)
    text = (b'{"content":"deer","additional_kwargs":{}}' * 6000)[:size]

    assert unpack(pack(noise)) == noise
    assert unpack(pack(text)) == text
    assert len(pack(noise)) <= len(noise) + 200


@pytest.mark.parametrize("head", [b"\x78", b"\x58", b"\x78\x9c", b"xyz"])
def test_a_body_that_looks_compressed_comes_back_too(head: bytes) -> None:
    assert unpack(pack(head)) == head
    assert unpack(pack(head + b"\x00" * 50)) == head + b"\x00" * 50
    assert unpack(pack(zlib.compress(head * 100))) == zlib.compress(head * 100)


def test_names_that_rows_share_cost_almost_nothing() -> None:
    body = b'{"additional_kwargs":{},"response_metadata":{"finish_reason":"stop","model_name":"'

    assert len(pack(body)) < len(body) / 3


def test_the_first_list_of_words_is_frozen() -> None:
    """Rows on people's disks refer to this checksum: add a list, never edit one."""
    assert 0xE34B4DED in DICTIONARIES
    assert len(NEWEST) < 8192


def test_times_keep_their_microseconds() -> None:
    assert time_of(1_763_200_000_123_457).isoformat() == "2025-11-15T09:46:40.123457+00:00"
