"""Find the texts that answer a query, by words and by meaning.

Rank texts that are at hand:

    hits = await rank_in_thread(query, texts, limit=5, embeddings=default_embeddings())
    best = texts[hits[0].index]  # also: hits[0].score, .words, .meaning, each from 0 to 1

`embeddings=None` ranks by words alone. For several queries on the same texts build a `Ranker` once, and for
the parts of one document or conversation pass `neighbours=1`. `min_score` leaves out what does not match.

Keep texts in the database and find them there with `Index`: `sync` makes a collection contain exactly the
given sources (unchanged ones cost nothing), `search` returns hits with source, text, data and score.

Split a document into passages with lines, headings and page: `passages(text)`. The terms that are compared:
`terms(text)`. Both are pure functions.
"""

from deerflow.retrieval.analysis import query_terms, terms, words
from deerflow.retrieval.chunks import Passage, passages
from deerflow.retrieval.embeddings import EmbeddingModel, StaticEmbeddings, default_embeddings
from deerflow.retrieval.index import Index, IndexHit, IndexText
from deerflow.retrieval.providers import create_embeddings
from deerflow.retrieval.ranking import RankedText, Ranker, rank, rank_in_thread

__all__ = [
    "EmbeddingModel",
    "Index",
    "IndexHit",
    "IndexText",
    "Passage",
    "RankedText",
    "Ranker",
    "StaticEmbeddings",
    "create_embeddings",
    "default_embeddings",
    "passages",
    "query_terms",
    "rank",
    "rank_in_thread",
    "terms",
    "words",
]
