"""Turns text into comparable terms: English words lightly stemmed, Chinese as pairs of characters."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

Language = Literal["en", "zh"]
"""The languages the offline model answers in."""

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_RUN = re.compile(rf"[{_CJK}]+|\d+(?:[.,]\d+)*|(?:(?![{_CJK}])[^\W\d_])+")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_HUMP = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_VOWEL = re.compile(r"[aeiouy]")

# Particles carry no meaning of their own and would glue unrelated words into false pairs.
_PARTICLES = re.compile("[的了吗呢吧着]")


def listed(text: str) -> frozenset[str]:
    """Return the words of a list that is written as one text."""
    return frozenset(re.findall(r"\S+", text))


STOP_WORDS = listed(
    """
    a about above after again all also am an and any are as at be because been before being below
    between both but by can could did do does doing down during each etc few for from further had has
    have having he her here hers him his how i if in into is it its itself just may me might more most
    must my no nor not now of off on once only or other our ours out over per please same shall she
    should so some such than that the their theirs them then there these they this those through to too
    under until up upon us very via was we were what when where whether which while who whom whose why
    will with within without would yes you your yours s t don doesn isn aren wasn didn won let
    这些 那些 什么 怎么 如何 我们 你们 他们 它们 可以 一个 一些 以及 是否 哪些 请问 因为 所以
    但是 如果
    """
)


def terms(text: str) -> list[str]:
    """Return the terms of `text` in order, without stop words."""
    return [term for term in _all_terms(text) if term not in STOP_WORDS]


def language_of(text: str) -> Language:
    """Return the language to answer `text` in: Chinese when it is written in it, else English."""
    return "zh" if len(_HAN.findall(text)) >= 2 and not _KANA_OR_HANGUL.search(text) else "en"


def is_cjk(character: str) -> bool:
    """Say whether `character` belongs to a script written without spaces."""
    return bool(_HAN.match(character) or _KANA_OR_HANGUL.match(character))


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return `word` without its common English endings, so that its forms meet."""
    if len(word) < 4 or not word.isascii():
        return word
    word = _without_plural(word)
    for ending, kept in (("ability", "abl"), ("ibility", "ibl"), ("ency", "ent"), ("ancy", "ant")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)] + kept
    for ending in ("ing", "ed", "ly"):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) >= 3 and _VOWEL.search(root) and not word.endswith("eed"):
            word = root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _without_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _all_terms(text: str) -> Iterator[str]:
    for match in _RUN.finditer(text):
        run = match.group()
        if is_cjk(run[0]):
            yield from _pairs(run)
            continue
        lower = run.lower()
        if lower not in STOP_WORDS:
            yield stem(lower)
        # `maxRetries` and `PostgreSQL` are also found by their parts.
        if lower != run and not run[1:].islower() and not run.isupper():
            yield from (stem(part.lower()) for part in _HUMP.findall(run) if 1 < len(part) < len(run))


def _pairs(run: str) -> Iterator[str]:
    for piece in _PARTICLES.split(run):
        if len(piece) == 1:
            yield piece
        yield from (piece[index : index + 2] for index in range(len(piece) - 1))
