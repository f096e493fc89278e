"""Whether two facts say the same in other words.

Vectors cannot tell: "lives in Bergen" and "lives in Oslo" are close, and are different. So the words are
compared, without those that only frame a statement; verbs that mean the same count as one relation.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from deerflow.memory.searching import terms_of

_RELATIONS = {
    "like": """like enjoy love prefer favourite favorite fond fan adore appreciate keen preferred
        preference beloved 喜欢 喜爱 爱好 偏好 最爱 热爱 喜好 钟爱 爱喝 爱吃""",
    "dislike": "dislike hate detest loathe 讨厌 不喜欢 厌恶 反感",
    "live": "live living reside residing resident residence home based 住在 居住 定居 家在 现居",
    "work": "work working job employed profession occupation career 工作 职业 任职 就职 从事 担任",
    "name": "name named called 名字 名叫 姓名 叫做",
    "have": "have own owner possess 拥有",
    "speak": "speak speaking language fluent 会说 语言",
}
_FRAME = """
the a an is are was were be been being am of in on at to for with by from as and or that this it its very
really user they their them he she his her i my me person drink drinking eat eating drinker use using who
what does do did also still always usually often mostly currently now generally quite lot much big great
用户 最 他 她 我 的 了 是 在 很 非常 平时 一般 现在 目前 经常 也 都 这位 本人 喝 吃 特别 个 一个
"""
_NEGATION = re.compile(r"\b(?:not|never|no|without|stopped)\b|n't\b|n’t\b|[不没无]", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_POSSESSIVE = re.compile(r"['’]s?\b")


@dataclass(frozen=True, slots=True)
class _Statement:
    relations: frozenset[str]
    core: frozenset[str]
    """What the statement is about, without the words that frame it."""
    numbers: frozenset[str]
    is_negated: bool


def says_the_same(one: str, other: str) -> bool:
    """Return whether two facts are the same statement in other words."""
    a, b = _statement(one), _statement(other)
    if a.is_negated != b.is_negated or a.numbers != b.numbers or not a.core or a.core != b.core:
        return False
    return a.relations == b.relations or not a.relations or not b.relations


@lru_cache(maxsize=20_000)
def _statement(text: str) -> _Statement:
    lower = _POSSESSIVE.sub("", text.casefold())
    is_negated = _NEGATION.search(lower) is not None
    relations = set()
    for name, words in _CHINESE_RELATIONS.items():
        for word in words:
            if word in lower:
                relations.add(name)
                lower = lower.replace(word, " ")
    for word in _CHINESE_FRAME:
        lower = lower.replace(word, " ")
    core = set()
    for term in terms_of(lower):
        relation = _RELATION_OF.get(term)
        if relation is not None:
            relations.add(relation)
        elif term not in _FRAME_TERMS:
            core.add(term)
    return _Statement(frozenset(relations), frozenset(core), frozenset(_NUMBER.findall(lower)), is_negated)


_RELATION_OF = {
    term: name
    for name, words in _RELATIONS.items()
    for word in words.split()
    for term in terms_of(word)
    if word.isascii()
}
_CHINESE_RELATIONS = {
    name: sorted((word for word in words.split() if not word.isascii()), key=len, reverse=True)
    for name, words in _RELATIONS.items()
}
_FRAME_TERMS = frozenset(term for word in _FRAME.split() if word.isascii() for term in terms_of(word))
_CHINESE_FRAME = sorted((word for word in _FRAME.split() if not word.isascii()), key=len, reverse=True)
