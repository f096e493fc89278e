"""Reads a question: what it wants done, which aspects it names, and which words matter."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Literal

from deerflow.models.offline.words import Language, language_of, terms


@dataclass(frozen=True, slots=True)
class Facet:
    """One thing to compare by."""

    en: str
    zh: str
    names: str
    """Words that, in a question, mean this facet."""
    signs: str
    """Words that, in a text, show it is spoken of."""

    def label(self, language: Language) -> str:
        return self.zh if language == "zh" else self.en


FACETS = (
    Facet(
        "Approach",
        "做法",
        "approach method design architecture mechanism 做法 方法 方案 设计 架构 思路 原理",
        "idea strategy technique algorithm works uses keeps stores splits builds based relies consists means "
        "采用 使用 基于 策略 通过 实现 机制 算法 保存 存储",
    ),
    Facet(
        "Strengths",
        "优点",
        "strength advantage benefit pros upside 优点 优势 好处",
        "simple easy good better best robust flexible wins improves enough familiar mature "
        "简单 容易 灵活 优于 更好 成熟 方便",
    ),
    Facet(
        "Weaknesses",
        "缺点",
        "weakness disadvantage drawback cons downside limitation risk problem 缺点 劣势 不足 局限 风险 问题",
        "limits hard difficult complex complicated fails loses lost worse cannot stale breaks lacks suffers "
        "限制 困难 复杂 失败 丢失 不能 无法 麻烦 难以",
    ),
    Facet(
        "Cost",
        "成本",
        "cost price expense budget 成本 费用 价格 开销 预算",
        "expensive cheap money dollars euros paid licence license memory storage disk overhead resources "
        "servers 昂贵 便宜 内存 资源 付费 美元 免费",
    ),
    Facet(
        "Speed",
        "性能",
        "speed performance latency throughput 性能 速度 延迟 吞吐 效率",
        "fast faster slow slower quick seconds milliseconds ms delay scales requests load "
        "更快 较快 很快 较慢 更慢 毫秒 扩展 并发",
    ),
    Facet(
        "Reliability",
        "可靠性",
        "reliability consistency safety security durability availability 可靠 可靠性 一致性 安全 安全性 稳定",
        "reliable consistent safe durable fault crash recover recovery errors retries backup guarantee loss "
        "一致 持久 故障 崩溃 恢复 错误 重试 备份 保证",
    ),
    Facet(
        "When to use",
        "适用场景",
        "recommendation recommend recommended suitability suited fit 适用 场景 建议 推荐 适合",
        "choose should suits prefer preferred ideal needs works 选择 应该 首选 适用于",
    ),
)


def widened(query: dict[str, float], *, share: float) -> dict[str, float]:
    """Return weighted terms with, at a share of the weight, the other words for the facets they name."""
    wide = dict(query)
    for facet in FACETS:
        weight = max((query.get(term, 0.0) for term in _names(facet)), default=0.0)
        if weight:
            for term in _names(facet) | frozenset(terms(facet.signs)):
                wide.setdefault(term, weight * share)
    return wide


@cache
def _names(facet: Facet) -> frozenset[str]:
    return frozenset(terms(f"{facet.names} {facet.en} {facet.zh}")) - {"us"}


Intent = Literal["compare", "summarise", "ask"]

MAX_ASPECTS = 8

_COMPARE = re.compile(
    r"\b(compar\w*|versus|vs|differ\w*|contrast\w*|pros and cons|trade-?offs?|which (?:\w+ )?(?:is|"
    r"are) (?:best|better))\b|对比|比较|区别|差异|异同|优缺点|不同",
    re.I,
)
_SUMMARISE = re.compile(
    r"\b(summar\w*|overview|outline|key points|main points|gist|tl;?dr|"
    r"what (?:is|are) (?:it|th(?:is|ese|ey|e))(?: \w+){0,3} about(?=\W*$))\b"
    r"|总结|概括|概述|摘要|要点|归纳|讲了什么|说了什么|主要内容",
    re.I,
)
_LEAD_IN = re.compile(
    r"\b(?:in terms of|with (?:respect|regard) to|regarding|concerning|focus(?:ing|ed)? on|considering|"
    r"looking at|along|about|aspects?:|criteria:|by(?: their)?|on)\s+(?P<list>[^.?!;:\n]+)",
    re.I,
)
_ITEM = r"[\w-]+(?: [\w-]+){0,2}"
_MOST_ITEMS = 30
"""More is no list of aspects but a pasted table, and looking for its end from every word takes for ever."""
_ENUMERATION = re.compile(
    rf"(?<![\w-])(?P<list>{_ITEM}(?:, {_ITEM}){{1,{_MOST_ITEMS}}},? (?:and|or) {_ITEM})"
    r"(?= of\b| in\b| for\b|[.?!]|$)",
    re.I,
)
_SEPARATOR = re.compile(r"\s*+(?:,|;|&|\band\b|\bor\b|\bas well as\b|、|，|以及|和|与|及)\s*", re.I)
_ZH_LIST = re.compile(
    rf"(?P<list>[^，。？！；\s]{{1,16}}(?:、[^，。？！；、\s]{{1,8}}){{0,{_MOST_ITEMS}}}"
    r"(?:和|与|及|以及)[^，。？！；、\s]{1,14})"
)
_ZH_BEFORE = re.compile(r".*(?:比较|对比|总结|分析|说明|关于|的|从|在|就|按|里|中|对(?!比))")
_ZH_AFTER = re.compile(
    r"(?:等)?(?:方面|角度|维度|上面|上|的?区别|的?差异|的?不同|如何|怎么样|是什么|有哪些|有什么|分别|来|"
    r"进行).*$"
)
_CLAUSE = re.compile(
    r"[?？；;\n]+|,?\s+and\s+(?=(?:what|who|whom|how|why|when|where|which|is|are|does|do|did|can|should|"
    r"will)\b)|[，,]\s*(?:以及|并且|还有|同时|另外)",
    re.I,
)
_OPENING = re.compile(
    r"^(?:(?:the|their|its|a|an|any|each|all|about|explain|describe|list|compare|discuss|show|what|are|is|"
    r"summari[sz]e)\s+)+",
    re.I,
)
_INSTRUCTION = re.compile(
    r"[\w\-]*/mnt/\S+|\b[\w-]+\.[a-z]{1,5}\b|比较|对比|区别|差异|异同|不同|总结|概括|概述|摘要|要点|归纳|"
    r"分析|说明|介绍|这些|那些|这个|那个|文件夹|文件|笔记|文档|资料|材料|工作区|仓库|项目|上传|报告|请|"
    r"帮我|帮忙|一下|一份|写|告诉|列出|给出|根据|关于|里面|其中|哪些|什么|如何|怎么|为什么|讲了|说了|内容|"
    r"主要|有没有|提到"
)
_INSTRUCTION_TERMS = frozenset(
    terms(
        "compare comparing comparison contrast difference different differ versus vs summarise summarize "
        "summary summarising overview outline point key main write report tell give show list describe "
        "explain find analyse analyze analysis read look note file document doc upload uploaded attached "
        "attachment folder directory workspace repo repository codebase question answer say says said "
        "mention mentioned discuss discussed cover according following go make terms respect regard aspect "
        "aspects criteria pros cons short brief detail want need know help use using text sentence content "
        "each every across citation cite cited"
    )
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, understood as far as rules go."""

    text: str
    language: Language
    intent: Intent
    aspects: tuple[str, ...]
    """What it asks to look at, in its own words; empty when it names nothing in particular."""

    @property
    def plan(self) -> tuple[str, ...]:
        """The aspects to look for: those named, or the usual ones for a comparison."""
        if self.intent == "compare" and len(self.aspects) < 2:
            usual = tuple(facet.label(self.language) for facet in FACETS)
            return tuple(dict.fromkeys((*self.aspects, *usual)))
        return self.aspects or (main_points(self.language),)


def understand(text: str) -> Question:
    """Return what `text` asks for."""
    flat = " ".join(text.split())
    language = language_of(flat)
    intent: Intent = "compare" if _COMPARE.search(flat) else "summarise" if _SUMMARISE.search(flat) else "ask"
    named = _zh_aspects(flat) if language == "zh" else _en_aspects(flat, intent)
    if not named and intent == "ask":
        named = _clauses(text)
    distinct = {label.lower(): label for label in reversed(named) if key_terms(label)}
    return Question(flat, language, intent, tuple(reversed(distinct.values()))[:MAX_ASPECTS])


def main_points(language: Language) -> str:
    """Return the name of the aspect that stands for the text as a whole."""
    return "主要内容" if language == "zh" else "Main points"


def key_terms(text: str) -> list[str]:
    """Return the terms of a question that say what it is about, not what to do."""
    found = terms(_INSTRUCTION.sub(" ", text))
    # A single Chinese character is what the cutting left over, not a word.
    return [term for term in found if term not in _INSTRUCTION_TERMS and (len(term) > 1 or term.isascii())]


def query_for(aspect: str, question: str) -> dict[str, float]:
    """Return weighted terms for an aspect: its own words first, then others for them, then the question's."""
    own = dict.fromkeys(key_terms(aspect), 1.0)
    query = widened(own, share=0.5 if len(own) == 1 else 0.25)
    for term in key_terms(question):
        query.setdefault(term, 0.3)
    return query


def coverage(aspect: str, found: Collection[str]) -> float:
    """Return a factor for how many of an aspect's words a text has: all of them beats one of them often."""
    own = set(key_terms(aspect))
    return 0.5 + len(own.intersection(found)) / len(own) if len(own) > 1 else 1.0


def _en_aspects(text: str, intent: Intent) -> list[str]:
    for match in _LEAD_IN.finditer(text):
        items = _items(match["list"])
        # These are too common to mean a list of aspects when only one thing follows: "a note by Ann".
        common = ("by ",) if intent != "ask" else ("by ", "on ", "about ")
        if items and (len(items) > 1 or not match.group().lower().startswith(common)):
            return items
    enumeration = _ENUMERATION.search(text)
    return _items(enumeration["list"]) if enumeration else []


def _items(text: str) -> list[str]:
    items = [_OPENING.sub("", item.strip(" .:")) for item in _SEPARATOR.split(text)]
    items = [re.sub(r"\s+(?:of|in|for|across|between)\s.*$", "", item, flags=re.I) for item in items]
    short = [item for item in items if 0 < len(item.split()) <= 4 and len(item) <= 40 and key_terms(item)]
    return [item[0].upper() + item[1:] for item in short]


def _zh_aspects(text: str) -> list[str]:
    for match in _ZH_LIST.finditer(text):
        pieces = [piece for piece in _SEPARATOR.split(match["list"]) if piece]
        if not pieces:  # nothing but separators
            continue
        pieces[0] = _ZH_BEFORE.sub("", pieces[0])
        pieces[-1] = _ZH_AFTER.sub("", pieces[-1])
        items = [piece for piece in pieces if 0 < len(piece) <= 8 and key_terms(piece)]
        if len(items) > 1:
            return items
    return []


def _clauses(text: str) -> list[str]:
    pieces = [" ".join(piece.split()).strip(" ,.，。:：") for piece in _CLAUSE.split(text)]
    return [piece[:120].replace(";", ",") for piece in pieces if key_terms(piece)]
