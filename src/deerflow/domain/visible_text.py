"""Make every character of a text visible, so that people approve what they see.

Three kinds of characters are replaced by their codes: those that are invisible or reorder the text, those
that look like ASCII punctuation, and letters of other alphabets where they can pass for Latin ones. Words
that are plainly Russian, Greek or Chinese stay unchanged. The web client has the same rules in
`web/src/run/visibleText.ts`; both are tested with `tests/support/visible_text.json`.
"""

import re
import unicodedata

_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160"
    "\u1680\u17b4-\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ud800-\uf8ff"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U00013455\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
)
"""Controls, all spaces except U+0020, direction marks, fillers, private use, lone surrogates."""
_PUNCTUATION = (
    "\u01c0-\u01c3\u02b9\u02bb-\u02bd\u02c2-\u02c3\u02c6\u02c8\u02ca-\u02cb\u02d0\u02d7\u02dc\u02f8\u037e"
    "\u0387\u0589\u05c0\u05c3\u066a\u066d\u06d4\u0701-\u0704\u2010-\u2012\u201a\u2024\u2032\u2035\u2039-\u203a"
    "\u2041\u2043-\u2044\u204e\u2052-\u2053\u2212\u2215-\u2217\u2223\u2236\u223c\u2758\u29f5\u29f8-\u29f9"
    "\ua4fe-\ua4ff\ua789\ufe31-\ufe34\ufe4d-\ufe4f\ufe50-\ufe6b\uff3c\uff3f-\uff40\uff5c\uff5e"
)
"""Characters that look like ASCII punctuation; quotes and dashes of ordinary prose are not included."""
_STYLED = (
    "\u0251\u0261\u0269\u2113\u212a\u2160-\u217f\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff"
)
"""Letters and digits that always look like ASCII ones."""
_FOREIGN = (
    "\u0370-\u037d\u037f-\u0386\u0388-\u03ff\u0400-\u052f\u0531-\u0556\u0561-\u0587\u13a0-\u13fd\u1c80-\u1c8a"
    "\u1f00-\u1fff\u2c80-\u2cff\u2de0-\u2dff\ua4d0-\ua4fd\ua640-\ua69f\uab70-\uabbf"
)
"""Alphabets that share shapes with Latin: Greek, Cyrillic, Armenian, Cherokee, Coptic, Lisu."""
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01bf\u01c4-\u024f\u1e00-\u1eff"
_LOOKALIKE = (
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαινορυχϲϳϹͿ"
    "АВЕЅІЈКМНОРСТУХаеѕіјорсухѴѵҮүһӀӏԁԌԍԚԛԜԝ"
    "ՍՕՏԼսօոհց"
    "\u13a0-\u13fd\u2c80-\u2cff\ua4d0-\ua4fd\uab70-\uabbf"
)
"""Letters that look like a Latin one: a word made only of these looks like a Latin word."""

_ALWAYS = re.compile(f"[{_UNSEEN}{_PUNCTUATION}{_STYLED}]")
_WORD = re.compile(f"[{_LATIN}{_FOREIGN}0-9_]+")
_FOREIGN_LETTER = re.compile(f"[{_FOREIGN}]")
_LATIN_LETTER = re.compile(f"[{_LATIN}]")
_LATIN_SHAPES = re.compile(f"[{_LOOKALIKE}0-9_]+")


def visible(text: str) -> str:
    """Return a text without hidden or misleading characters; takes linear time."""
    if not text.isascii() and _FOREIGN_LETTER.search(text):
        text = _WORD.sub(_unmasked, text)
    return _ALWAYS.sub(_coded, text)


def printable(text: str) -> str:
    """Return a text that is safe to print to a terminal: controls and direction marks as their codes."""
    return "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf") else _code(ord(letter))
        for letter in text
    )


def _unmasked(word: re.Match[str]) -> str:
    """Return a word with foreign letters as codes, if it mixes alphabets or looks entirely Latin."""
    letters = word[0]
    if letters.isascii() or not (_LATIN_LETTER.search(letters) or _LATIN_SHAPES.fullmatch(letters)):
        return letters
    return _FOREIGN_LETTER.sub(_coded, letters)


def _coded(letter: re.Match[str]) -> str:
    return _code(ord(letter[0]))


def _code(point: int) -> str:
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\u{{{point:x}}}"
