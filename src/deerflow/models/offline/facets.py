"""What people usually compare things by, with the words that give each away in both languages."""

from dataclasses import dataclass
from functools import cache

from deerflow.models.offline.words import Language, terms


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
