"""Choose what of a memory matters for a question: by relevance, then by confidence and recency.

The index finds candidates by words and by meaning. What it finds is looked up in the memory itself, so that a
fact that was deleted or replaced is never recalled, even where the index is behind.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from deerflow.domain import folder_name
from deerflow.memory.base import SECTIONS, Fact, Memory, MemorySection, Scope
from deerflow.memory.searching import terms_of

RELEVANT = 0.06
"""Score from which an item is given to the model: half of the unrelated facts of a memory score less."""
MAX_ITEMS = 8
"""Items per question: more would hide those that matter."""
HALF_LIFE_DAYS = 180.0
_CONFIDENCE_SHARE = 0.15
_RECENCY_SHARE = 0.1
_SUMMARY = "summary"
_SECTION = "section/"


class FoundText(Protocol):
    """A text that the index found."""

    @property
    def source(self) -> str: ...

    @property
    def score(self) -> float: ...

    @property
    def words(self) -> float: ...

    @property
    def meaning(self) -> float: ...


class FactIndex(Protocol):
    """The part of an index that memories need (`retrieval.Index`)."""

    async def version(self, collection: str) -> str: ...

    async def sync_texts(self, collection: str, texts: Mapping[str, str], *, version: str) -> None: ...

    async def search(
        self, collection: str, query: str, *, limit: int = ..., min_score: float = ...
    ) -> Sequence[FoundText]: ...

    async def delete(self, collection: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RecalledItem:
    """A fact or a summary that matters for a question, and why."""

    kind: str
    """`fact` or `summary`."""
    id: str
    """Of the fact; the name of the section for a summary."""
    content: str
    category: str
    confidence: float
    created_at: str
    source: str
    score: float
    """From 0 to 1: words, meaning, confidence and recency together."""
    words: float
    meaning: float

    def to_dict(self) -> dict[str, Any]:
        """Return the item as clients see it."""
        return {
            "kind": self.kind,
            "id": self.id,
            "content": self.content,
            "category": self.category,
            "confidence": self.confidence,
            "createdAt": self.created_at,
            "source": self.source,
            "score": round(self.score, 4),
            "words": round(self.words, 4),
            "meaning": round(self.meaning, 4),
        }


_FORMULA = re.compile(
    r"\b(?:hi|hello|hey|dear|good|morning|afternoon|evening|night|day|days|today|tomorrow|bye|goodbye|see|later|"
    r"soon|thanks?|thx|ok|okay|yes|yeah|yep|no|nope|never|mind|sure|right|exactly|great|nice|fine|cool|perfect|"
    r"wow|lovely|well|done|work|job|so|far|sorry|excuse|please|haha+|lol|funny|jokes?|tell|welcome|go|going|on|"
    r"ahead|continue|repeat|again|wait|think|let|hmm+|sounds?|wrong|correct|lot|much|very|really|that|this|it|"
    r"are|is|was|isn|how|what|who|can|could|you|your|do|did|have|has|to|up|i|m|s|t|me|my|we|us|a|an|the|and|but|"
    r"not|made|doing|been|there|all|same|guess|got|get|know|understand|weather|weekend|happy|forget|long|time|"
    r"buddy|wonderful|awesome|brilliant|amazing)\b"
    r"|你好|您好|早上好|上午好|下午好|晚上好|早安|晚安|再见|拜拜|谢谢|多谢|感谢|不客气|没关系|没事|不用了?|好的|好吧|太好了?|"
    r"可以|对的?|是的|嗯+|哈+|嘿|哇|继续|再说一遍|笑话|讲个|真有意思|有意思|不好意思|抱歉|对不起|先走了?|让我想想|想想|"
    r"最近|怎么样|如何|能做什么|做什么|你能|你是谁|谁做的|明天见|回头见|明白了?|知道了?|辛苦[了啦]?|厉害|不错|很棒|真棒|"
    r"天气|今天|周末|愉快|快乐|在吗|漂亮|干得|[你您我吗呢吧啊呀的了真太很也就]",
    re.IGNORECASE,
)
"""Greetings, thanks, consent and the words around them."""
_ABOUT_ASSISTANT = re.compile(
    r"\b(?:your?|are you|do you|did you|were you|have you)\b(?!.*\b(?:i|me|my|mine|we|us|our)\b)"
    r"|^[^我咱]*[你您](?!.*[我咱])",
    re.IGNORECASE | re.DOTALL,
)
_REQUEST = re.compile(
    r"[?？]|\b(?:can|could|would|will) you\b|\b(?:what|which|who|when|where|why|how)\b"
    r"|[请帮替给吗呢哪谁怎几]|什么",
    re.IGNORECASE,
)
_FEW_WORDS = 4
_SHORT_CHARS = 80


def is_small_talk(text: str) -> bool:
    """Return whether a message has only greetings and the like, or asks about the assistant itself."""
    plain = text.replace("'", " ").replace("’", " ").replace("_", " ")
    if not re.search(r"\w", _FORMULA.sub(" ", plain)):
        return True
    is_polite = re.search(r"\b(?:can|could|would|will) you\b|[请帮替给]", text, re.IGNORECASE) is not None
    return not is_polite and len(text) < _SHORT_CHARS and _ABOUT_ASSISTANT.search(plain) is not None


def is_remark(text: str) -> bool:
    """Return whether a message asks for nothing and has few words: only shared words say what it is about."""
    return _REQUEST.search(text) is None and len(list(terms_of(_FORMULA.sub(" ", text)))) < _FEW_WORDS


def collection_of(scope: Scope) -> str:
    """Return the name of a scope's collection in the index."""
    agent = scope.agent_name
    return f"memory/{folder_name(scope.user_id)}/{'user' if agent is None else f'agent/{agent.lower()}'}"


def version_of(memory: Memory) -> str:
    """Return what tells one state of a memory from all others."""
    return f"{memory.revision}/{memory.last_updated}"


def texts_of(memory: Memory) -> dict[str, str]:
    """Return the texts to index by their source."""
    sections = {f"{_SECTION}{name}": memory.section(name).summary for name in SECTIONS}
    return {fact.id: fact.content for fact in memory.facts} | {
        source: summary for source, summary in sections.items() if summary
    }


def recalled_items(
    memory: Memory, found: Iterable[FoundText], *, facts: Mapping[str, Fact], now: datetime
) -> list[RecalledItem]:
    """Return what was found, best first; what the memory no longer has is left out.

    Args:
        facts: Those of the memory by id.
    """
    items = []
    for text in found:
        name = text.source.removeprefix(_SECTION)
        if text.source in facts:
            items.append(_fact_item(facts[text.source], text, now))
        elif name != text.source and memory.section(name).summary:
            items.append(_summary_item(name, memory.section(name), text, now))
    return sorted(items, key=lambda item: (-item.score, item.id))


def reduced_to(memory: Memory, items: Sequence[RecalledItem], *, always: Collection[str] = ()) -> Memory:
    """Return the memory with the items alone, in their order, after the facts of some categories."""
    chosen = {item.id for item in items}
    facts = {fact.id: fact for fact in memory.facts}
    guaranteed = [fact for fact in memory.facts if fact.category in always and fact.id not in chosen]
    return Memory(
        sections={item.id: memory.section(item.id) for item in items if item.kind == _SUMMARY},
        facts=(*guaranteed, *(facts[item.id] for item in items if item.id in facts)),
        revision=memory.revision,
    )


def _fact_item(fact: Fact, text: FoundText, now: datetime) -> RecalledItem:
    score = text.score * _quality(fact.confidence, fact.created_at, now)
    return RecalledItem(
        *("fact", fact.id, fact.content, fact.category, fact.confidence, fact.created_at, fact.source),
        score=score,
        words=text.words,
        meaning=text.meaning,
    )


def _summary_item(name: str, section: MemorySection, text: FoundText, now: datetime) -> RecalledItem:
    score = text.score * _quality(1.0, section.updated_at, now)
    return RecalledItem(
        *(_SUMMARY, name, section.summary, _SUMMARY, 1.0, section.updated_at, ""),
        score=score,
        words=text.words,
        meaning=text.meaning,
    )


def _quality(confidence: float, at: str, now: datetime) -> float:
    """Return a factor up to 1: less for what is uncertain or old."""
    rest = 1 - _CONFIDENCE_SHARE - _RECENCY_SHARE
    return rest + _CONFIDENCE_SHARE * confidence + _RECENCY_SHARE * _recency(at, now)


def _recency(at: str, now: datetime) -> float:
    try:
        days = (now - datetime.fromisoformat(at)).total_seconds() / 86400
    except (ValueError, TypeError):  # a date from a file of the user's
        return 0.5
    return float(0.5 ** (max(days, 0.0) / HALF_LIFE_DAYS))
