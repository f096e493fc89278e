"""Text analysis: the search terms of a text in English, Chinese and code.

The database indexes exactly these terms, so that a text is found alike in memory, SQLite and PostgreSQL.
"""

import re
import unicodedata
from collections.abc import Iterator

MAX_TERM_CHARS = 64
CJK = "\u2e80-\u303f\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN = re.compile(rf"[{CJK}]+|[^\W_{CJK}]+(?:[._'’+#-]*[^\W_{CJK}]+)*[+#]{{0,2}}")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_NO_WORD = re.compile(r"[的了吗呢吧啊呀么嘛是我你您他她它们\u2e80-\u303f]+")
_VERSION = re.compile(r"v?\d+(?:[.:-]\d+)+")
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("edly", ""), ("ed", ""), ("ly", ""), ("es", "e"))
_FEWEST_STEM_CHARS = 3

_STOP_WORDS = """
a an the this that these those and or but nor so if then than as of at by for from in into on onto
to with without about over under is am are was were be been being do does did done doing have has
had having will would can could shall should may might must dont doesnt didnt im ive i me my mine we
us our ours you your yours he him his she her hers it its they them their theirs what which who whom
whose when where why how there here not no yes also any some such just very please tell s t m re ve
ll d
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def terms(text: str) -> list[str]:
    """Return the search terms of a text, in order and with repetitions.

    English words are stemmed lightly; Chinese, Japanese and Korean become pairs of characters. Identifiers
    are followed by their parts: `getUserName` gives `getusernam`, `get`, `user`, `nam`. Words without a
    meaning of their own (`the`, `的`) are left out.
    """
    return list(_terms(unicodedata.normalize("NFKC", text)))


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a query, in order."""
    return list(dict.fromkeys(terms(text)))


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, unstemmed; for Chinese, pairs of characters."""
    found: list[str] = []
    for token in _TOKEN.findall(unicodedata.normalize("NFKC", text)):
        if is_cjk(token):
            found += _pairs(token)
        else:
            found += re.findall(r"[^\W_]+", token.casefold())
    return found


def is_cjk(text: str) -> bool:
    """Return whether a text begins with a Chinese, Japanese or Korean character."""
    return re.match(f"[{CJK}]", text) is not None


def stem(word: str) -> str:
    """Return an English word without its inflection; words of other alphabets stay as they are."""
    if len(word) <= _FEWEST_STEM_CHARS or not word.isascii() or not word.isalpha():
        return word
    for ending, instead in _ENDINGS:
        base = word.removesuffix(ending)
        if base != word and len(base) >= _FEWEST_STEM_CHARS and re.search("[aeiouy]", base):
            return _without_final_e(_undoubled(base + instead))
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _without_final_e(word)


def _terms(text: str) -> Iterator[str]:
    for token in _TOKEN.findall(text):
        if is_cjk(token):
            for run in _NO_WORD.split(token):
                yield from _pairs(run)
        elif _VERSION.fullmatch(token):
            yield token.casefold()[:MAX_TERM_CHARS]
        else:
            yield from _word_terms(token.replace("’", "'").removesuffix("'s").replace("'", ""))


def _word_terms(token: str) -> Iterator[str]:
    word = token.casefold()
    if word not in STOP_WORDS:
        yield stem(word)[:MAX_TERM_CHARS]
    parts = _PART.findall(token)
    if len(parts) > 1:
        for part in parts:
            lower = part.casefold()
            if lower != word and lower not in STOP_WORDS:
                yield stem(lower)[:MAX_TERM_CHARS]


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for at in range(len(run) - 1):
        yield run[at : at + 2]


def _undoubled(word: str) -> str:
    """Return `runn` as `run`."""
    if len(word) > _FEWEST_STEM_CHARS and word[-1] == word[-2] and word[-1] not in "aeiouylsz":
        return word[:-1]
    return word


def _without_final_e(word: str) -> str:
    return word[:-1] if word.endswith("e") and len(word) > _FEWEST_STEM_CHARS else word
