"""A server with the embedding APIs of OpenAI and of Ollama, checking requests as those do."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deerflow.retrieval import default_embeddings

MODEL = "text-embedding-3-small"
OLLAMA_MODEL = "nomic-embed-text"


class EmbeddingServer:
    """Where it listens, what it was asked, and which answers it owes before it answers properly."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.failures: list[tuple[int, dict[str, str], Any]] = []
        """Status, headers and body of the next answers."""
        self.raw: bytes | None = None

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        if self.failures:
            return self.failures.pop(0)
        inputs = body.get("input")
        texts = [inputs] if isinstance(inputs, str) else inputs
        if path == "/v1/embeddings":
            return _openai(body, texts)
        if path == "/api/embed":
            if body.get("model") != OLLAMA_MODEL:
                return 404, {}, {"error": f'model "{body.get("model")}" not found, try pulling it first'}
            return 200, {}, {"model": body["model"], "embeddings": _vectors(texts), "prompt_eval_count": 5}
        return 404, {}, {"detail": "Not Found"}


def _openai(body: dict[str, Any], texts: Any) -> tuple[int, dict[str, str], Any]:
    if body.get("model") != MODEL:
        message = f"The model `{body.get('model')}` does not exist."
        return (
            404,
            {},
            {"error": {"message": message, "type": "invalid_request_error", "code": "model_not_found"}},
        )
    if not isinstance(texts, list) or not texts or "" in texts:
        return 400, {}, {"error": {"message": "'$.input' is invalid.", "type": "invalid_request_error"}}
    size = body.get("dimensions") or 128
    data = [
        {"object": "embedding", "index": index, "embedding": vector[:size]}
        for index, vector in enumerate(_vectors(texts))
    ]
    # The specification orders entries by `index`, not by position.
    usage = {"prompt_tokens": 5, "total_tokens": 5}
    return 200, {}, {"object": "list", "data": data[::-1], "model": MODEL, "usage": usage}


def _vectors(texts: list[str]) -> list[list[float]]:
    model = default_embeddings()
    assert model is not None
    found: list[list[float]] = (model.embed(texts) * 3).tolist()  # not of length 1
    return found


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    """Serve on the loopback, in a thread, until the block is left."""
    state = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            state.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, headers, answer = state.answer(self.path, body)
            raw = state.raw if state.raw is not None else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
