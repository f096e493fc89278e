"""What a search returns, in one form for every provider."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

MAX_CONTENT_CHARS = 2000
MAX_TITLE_CHARS = 300
_RANK_OFFSET = 60
"""The constant of reciprocal rank fusion: how little the first ranks differ."""
_TRACKING = frozenset({"gclid", "fbclid", "msclkid", "yclid", "dclid", "igshid", "mc_cid", "mc_eid", "spm"})
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class WebResult:
    """One page that a search found."""

    title: str
    url: str
    content: str
    source: str
    """The provider that found it."""
    published: str | None = None
    score: float | None = None

    def to_json(self) -> dict[str, Any]:
        values = {"title": self.title, "url": self.url, "content": self.content}
        optional = {"published": self.published, "score": self.score}
        return {**values, **{key: value for key, value in optional.items() if value}, "source": self.source}


@dataclass(frozen=True, slots=True)
class ImageResult:
    """One image that a search found."""

    title: str
    image_url: str
    thumbnail_url: str
    source_url: str

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "image_url": self.image_url,
            "thumbnail_url": self.thumbnail_url or self.image_url,
            "source_url": self.source_url,
        }


def canonical_url(url: str) -> str:
    """Return a key that is equal for addresses of the same page.

    Scheme, `www.`, default port, fragment, trailing slash, order of parameters and tracking parameters do not
    count.
    """
    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").rstrip(".").removeprefix("www.")
        port = parts.port
    except ValueError:
        return url.strip()
    shown_port = "" if port is None or port == _PORTS.get(parts.scheme) else f":{port}"
    kept = [
        (name, value)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
        if not name.lower().startswith("utm_") and name.lower() not in _TRACKING
    ]
    query = f"?{urlencode(sorted(kept))}" if kept else ""
    return f"{host}{shown_port}{parts.path.rstrip('/') or '/'}{query}"


def merged(found: Sequence[Sequence[WebResult]], count: int) -> list[WebResult]:
    """Return the best results of several providers, each page once, ranked by reciprocal rank fusion."""
    weights: dict[str, float] = {}
    best: dict[str, WebResult] = {}
    for results in found:
        for rank, result in enumerate(unique(results)):
            key = canonical_url(result.url)
            weights[key] = weights.get(key, 0) + 1 / (_RANK_OFFSET + rank)
            best[key] = _richer(best[key], result) if key in best else result
    ranked = sorted(best, key=lambda key: -weights[key])
    return [best[key] for key in ranked[:count]]


def unique(results: Iterable[WebResult]) -> list[WebResult]:
    """Return the first result of each page."""
    return list({canonical_url(result.url): result for result in reversed(list(results))}.values())[::-1]


def _richer(one: WebResult, other: WebResult) -> WebResult:
    content = max(one.content, other.content, key=len)
    return replace(one, content=content, published=one.published or other.published)
