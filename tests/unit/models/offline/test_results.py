import pytest

from deerflow.models.offline.results import Hit, read_hits, read_page, read_paths


def test_plain_text_shorter_than_asked_for_is_the_end_of_the_file() -> None:
    page = read_page("one\ntwo\n", start=1, end=400)

    assert (page.lines, page.total, page.is_last) == (("one", "two"), 2, True)


def test_a_page_of_blank_lines_is_read_at_once() -> None:
    page = read_page("\n" * 200_000 + "end", start=1, end=400_000)

    assert (page.total, page.lines[-1]) == (200_001, "end")


def test_a_full_page_may_go_on() -> None:
    page = read_page("one\ntwo\n", start=5, end=6)

    assert (page.lines, page.total, page.is_last) == (("one", "two"), None, False)


def test_the_note_on_a_cut_page_is_no_line_of_the_file() -> None:
    page = read_page("one\n\n\n[Lines 3-4 of 90 shown; read on with start_line=5.]", start=3, end=400)

    assert (page.lines, page.total, page.is_last) == (("one", ""), 90, False)


def test_a_cut_line_is_one_line() -> None:
    text = "xxxx\n\n[Line 1 of 7 has 900 characters; its first 4 are shown. start_line=2 reads on.]"

    assert read_page(text, start=1, end=400).lines == ("xxxx",)


def test_lines_behind_a_gap_are_not_counted() -> None:
    page = read_page("one\ntwo\n[5000 of 9000 characters left out]\nlast", start=1, end=400)

    assert (page.lines, page.is_last) == (("one", "two"), False)


@pytest.mark.parametrize("text", ["7\tone\n8\t\n9\ttwo", "7: one\n8: \n9: two", "   7→one\n   8→\n   9→two"])
def test_line_numbers_in_front_are_taken_away(text: str) -> None:
    assert read_page(text, start=7, end=400).lines == ("one", "", "two")


def test_numbers_that_belong_to_the_text_stay() -> None:
    assert read_page("12: noon\n13: one", start=1, end=400).lines == ("12: noon", "13: one")


@pytest.mark.parametrize("text", ["", "(empty)", "[empty file]", "The file is empty."])
def test_an_empty_file_has_no_lines(text: str) -> None:
    page = read_page(text, start=1, end=400)

    assert (page.lines, page.is_last) == ((), True)


def test_found_lines_have_path_number_and_text() -> None:
    text = "/mnt/a: b.md:12: the text: here\nsub/c.md:3:x…\n[Only the first 2 matches are shown.]"

    assert read_hits(text, path="/mnt") == [
        Hit("/mnt/a: b.md", 12, "the text: here"),
        Hit("/mnt/sub/c.md", 3, "x"),
    ]


def test_listed_paths_are_files_with_their_folder() -> None:
    text = "Found 3 paths\n1. /mnt/u/a b.md\n/mnt/u/dir/\nsub/c.txt\n[Only the first 2 are shown.]\n(empty)"

    assert read_paths(text, path="/mnt/u") == ["/mnt/u/a b.md", "/mnt/u/sub/c.txt"]


def test_a_sentence_that_says_nothing_was_found_lists_nothing() -> None:
    assert read_paths("No files match **/* below /mnt/u.", path="/mnt/u") == []
