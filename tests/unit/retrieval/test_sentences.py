from deerflow.retrieval.sentences import LONGEST_SENTENCE, Fragment, sentences_of, shortened


def split(text: str, *, path: str = "a.md") -> list[tuple[Fragment, ...]]:
    return [sentence.fragments for sentence in sentences_of(enumerate(text.split("\n"), start=1), path=path)]


def test_sentences_on_one_line_are_told_apart() -> None:
    assert split("First one. Second one! Third?") == [
        (Fragment(1, "First one."),),
        (Fragment(1, "Second one!"),),
        (Fragment(1, "Third?"),),
    ]


def test_a_sentence_over_two_lines_knows_what_stands_on_which() -> None:
    assert split("Done. The cache is\nwritten through. Next.") == [
        (Fragment(1, "Done."),),
        (Fragment(1, "The cache is"), Fragment(2, "written through.")),
        (Fragment(2, "Next."),),
    ]


def test_abbreviations_and_decimals_end_no_sentence() -> None:
    assert split("It takes 3.5 s, e.g. Mondays, as Dr. Who and J. Smith said.") == [
        (Fragment(1, "It takes 3.5 s, e.g. Mondays, as Dr. Who and J. Smith said."),)
    ]


def test_chinese_sentences_end_without_a_space() -> None:
    assert split("缓存很快。成本较高！为什么？") == [
        (Fragment(1, "缓存很快。"),),
        (Fragment(1, "成本较高！"),),
        (Fragment(1, "为什么？"),),
    ]


def test_lists_tables_quotes_and_code_are_read_line_by_line() -> None:
    items = "- one item\n- two items\n  that go on\n\n"
    text = items + "| A | B |\n|---|---|\n| x | y |\n> quoted text\n```\ncode()\nmore()\n```"

    assert split(text) == [
        (Fragment(1, "one item"),),
        (Fragment(2, "two items"), Fragment(3, "that go on")),
        (Fragment(5, "A | B"),),
        (Fragment(7, "x | y"),),
        (Fragment(8, "quoted text"),),
        (Fragment(10, "code()"),),
        (Fragment(11, "more()"),),
    ]


def test_a_heading_is_a_sentence_and_is_known_to_those_below_it() -> None:
    sentences = sentences_of([(1, "# Title"), (2, "Text."), (3, "## Cost ##"), (4, "More.")], path="a.md")

    assert [(sentence.text, sentence.heading) for sentence in sentences] == [
        ("Title", ""),
        ("Text.", "Title"),
        ("Cost", ""),
        ("More.", "Cost"),
    ]


def test_data_and_code_files_count_line_by_line() -> None:
    assert split("a = 1. B\n\nb = 2", path="x.py") == [(Fragment(1, "a = 1. B"),), (Fragment(3, "b = 2"),)]


def test_lines_that_do_not_follow_each_other_are_not_joined() -> None:
    sentences = sentences_of([(3, "the end of"), (9, "something else")], path="a.txt")

    assert [sentence.text for sentence in sentences] == ["the end of", "something else"]


def test_an_endless_line_is_cut_at_a_word_and_says_so() -> None:
    (sentence,) = sentences_of([(1, "word " * 500)], path="a.txt")

    assert sentence.cut
    assert len(sentence.text) <= LONGEST_SENTENCE
    assert sentence.text.endswith("word")


def test_every_fragment_stands_on_its_line() -> None:
    text = "1. One. Two\n   three.\n\n* Four; 五。六\n七。\n\tTabbed text here.  And more  \r\nlast"
    lines = text.split("\n")

    assert all(fragment.text in lines[fragment.line - 1] for found in split(text) for fragment in found)


def test_a_huge_paragraph_without_blank_lines_is_split_quickly() -> None:
    text = "\n".join("Short. Text. Here. And there" for _ in range(20_000))

    assert len(split(text)) > 60_000


def test_shortening_keeps_short_text_and_cuts_long_text_at_a_word() -> None:
    assert shortened("short", 10) == "short"
    assert shortened("a long sentence, indeed", 17) == "a long sentence"
    assert shortened("没有空格的中文句子", 4) == "没有空格"
