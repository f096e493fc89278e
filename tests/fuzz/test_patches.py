"""Patches: whatever a model writes is applied exactly or refused with a reason."""

import difflib
from contextlib import suppress

from fuzz.inputs import texts
from hypothesis import example, given
from hypothesis import strategies as st

from deerflow.errors import DeerFlowError
from deerflow.tools.edits import apply_patch, parse_patch, patch_paths

LINES = st.one_of(
    st.sampled_from(
        (
            "a",
            "b",
            "",
            " ",
            "-- x",
            "++ x",
            "-- a/f",
            "++ b/f",
            "@@",
            "\\",
            "--- a",
            "+++ b",
            "é\u2028",
            "\x0b",
        )
    ),
    st.text(st.characters(exclude_characters="\n\r"), max_size=5),
)
FILES = st.builds(
    lambda lines, ending, end: ending.join(lines) + (ending if end and lines else ""),
    st.lists(LINES, max_size=12),
    st.sampled_from(("\n", "\r\n")),
    st.booleans(),
)
PIECES = st.sampled_from(
    (
        *(
            "--- a/f\n",
            "+++ b/f\n",
            "--- /dev/null\n",
            "+++ /dev/null\n",
            "@@ -1,2 +1,2 @@\n",
            "@@ -0,0 +1 @@\n",
        ),
        *(
            "@@ -999999999 +1 @@\n",
            "@@\n",
            " a\n",
            "-a\n",
            "+b\n",
            "\n",
            "\\ No newline at end of file\n",
            "diff --git a b\n",
        ),
    )
)


@given(st.one_of(texts, st.lists(PIECES, max_size=14).map("".join)), FILES)
def test_a_patch_is_taken_or_refused(patch: str, text: str) -> None:
    patch_paths(patch)

    with suppress(DeerFlowError):
        for file in parse_patch(patch):
            apply_patch(text, file)


@example([], ["a"], False, 0).via("an empty file got a newline that the patch does not have")
@example(["a", ""], ["a", "x"], False, 0).via("so did lines behind the last one")
@example(["a", "k", "-- y", ""], ["z", "k", "++ y", ""], False, 1).via(
    "taken for the names of a file without hunks, and dropped"
)
@given(st.lists(LINES, max_size=12), st.lists(LINES, max_size=12), st.booleans(), st.integers(0, 3))
def test_what_difflib_writes_makes_the_text_it_was_made_of(
    before: list[str], after: list[str], has_returns: bool, context: int
) -> None:
    ending = "\r\n" if has_returns else "\n"
    old, new = ending.join(before), ending.join(after)
    patch = unified(old, new, context)
    if not patch:
        return

    try:
        (file,) = parse_patch(patch)
        made = apply_patch(old, file)
    except DeerFlowError:
        # A line "-- x" that gives way to "++ y" reads like the names of another file: refused, never guessed.
        assert any(line.startswith("-- ") for line in before)
        assert any(line.startswith("++ ") for line in after)
        return

    assert made == (new if ending in old else new.replace("\r\n", "\n"))  # the file's own line ends


def unified(old: str, new: str, context: int) -> str:
    """Return the difference as diff writes it: a line without newline is marked."""
    lines = difflib.unified_diff(with_ends(old), with_ends(new), "a/f", "b/f", n=context)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def with_ends(text: str) -> list[str]:
    """Return the lines of a text with their ends; only a newline ends one."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])
