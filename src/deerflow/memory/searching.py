"""Words of a text in any language."""

import re
from collections.abc import Iterable

_WORD = re.compile(r"[^\W_]+")
_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")


def terms_of(text: str) -> Iterable[str]:
    """Yield the words of a text without a plural `s`; for Chinese, pairs of characters."""
    return (word.rstrip("s") if len(word) > 3 else word for word in words_of(text))


def words_of(text: str) -> Iterable[str]:
    """Yield the words of a text in lower case; for Chinese, which has no spaces, pairs of characters."""
    for word in _WORD.findall(text.casefold()):
        if _WIDE.search(word):
            yield from (word[at : at + 2] for at in range(max(len(word) - 1, 1)))
        else:
            yield word
