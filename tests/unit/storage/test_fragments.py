import pytest

from deerflow.storage.fragments import references, references_to, render

PIECES = {number: b'{"n":%d}' % number for number in range(20)}


@pytest.mark.parametrize(
    ("numbers", "marked"),
    [
        ([], b""),
        ([7], b"\x017\x01"),
        ([1, 2, 3], b"\x011-3\x01"),
        ([1, 2, 3, 7, 9, 10], b"\x011-3\x01,\x017\x01,\x019-10\x01"),
        ([3, 2, 1], b"\x013\x01,\x012\x01,\x011\x01"),
        ([5, 5], b"\x015\x01,\x015\x01"),
    ],
)
def test_consecutive_numbers_become_ranges_in_order(numbers: list[int], marked: bytes) -> None:
    assert references_to(numbers) == marked


@pytest.mark.parametrize("numbers", [[0], [0, 1, 2], [5, 4, 9, 10, 11, 3], list(range(20))])
def test_references_are_found_and_rendered(numbers: list[int]) -> None:
    body = b'{"messages":[' + references_to(numbers) + b'],"title":"x"}'

    rendered = render(body, PIECES)

    assert references(body) == numbers
    assert rendered == b'{"messages":[' + b",".join(PIECES[number] for number in numbers) + b'],"title":"x"}'


def test_a_body_without_references_is_returned_as_it_is() -> None:
    body = b'{"text":"\\u0001 5 \\u0001"}'

    assert references(body) == []
    assert render(body, {}) is body


def test_a_reference_is_named_once_however_often_it_occurs() -> None:
    assert references(b"\x012\x01,\x011-3\x01,\x012\x01") == [2, 1, 3]


def test_a_missing_fragment_is_an_error() -> None:
    with pytest.raises(KeyError):
        render(b"\x0199\x01", PIECES)
