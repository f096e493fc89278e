"""Passages of a text and their places."""

from deerflow.retrieval import passages

DOCUMENT = """# Kite

Kite is small.

## Storage

It writes a log.
It has no compaction at all.

```python
# no heading

code()
```

## Limits

One writer."""


def test_a_passage_knows_its_lines_and_headings() -> None:
    found = passages(DOCUMENT)

    assert [(one.first_line, one.last_line, one.headings) for one in found] == [
        (3, 3, ("Kite",)),
        (7, 14, ("Kite", "Storage")),
        (18, 18, ("Kite", "Limits")),
    ]
    lines = DOCUMENT.split("\n")
    for one in found:
        assert one.text == "\n".join(lines[one.first_line - 1 : one.last_line])


def test_pages_are_counted_by_form_feeds() -> None:
    found = passages("first page\fsecond page\n\nmore\fthird")

    assert [(one.page, one.text) for one in found] == [
        (1, "first page"),
        (2, "second page\n\nmore"),
        (3, "third"),
    ]


def test_a_long_paragraph_is_cut_between_sentences_and_loses_nothing() -> None:
    english = " ".join(f"Sentence number {n} says something." for n in range(100))
    chinese = "".join(f"第{n}句话。" for n in range(300))

    for text in (english, chinese, "x" * 1000, "\n".join(f"row {n}" for n in range(300))):
        found = passages(text, max_chars=200)
        assert all(len(one.text) <= 200 for one in found)
        assert "".join("".join(one.text.split()) for one in found) == "".join(text.split())
    assert all(
        one.text.endswith((".", "。")) for text in (english, chinese) for one in passages(text, max_chars=200)
    )


def test_lines_of_a_long_paragraph_keep_their_numbers() -> None:
    text = "\n".join(f"row {n}" for n in range(1, 301))

    for one in passages(text, max_chars=200):
        assert one.text.split("\n")[0] == f"row {one.first_line}"
        assert one.text.split("\n")[-1] == f"row {one.last_line}"


def test_an_empty_text_has_no_passages() -> None:
    assert passages("\n \n\f\n") == []


def test_a_heading_is_searched_with_its_passage() -> None:
    assert passages(DOCUMENT)[2].searchable == "Kite\nLimits\nOne writer."
