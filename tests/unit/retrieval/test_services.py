"""Embedding models behind HTTP, and the choice by the settings."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.embedding_server import MODEL, OLLAMA_MODEL, EmbeddingServer, embedding_server

from deerflow.config.embeddings import EmbeddingSettings
from deerflow.errors import ConfigError, EmbeddingError
from deerflow.retrieval import EmbeddingModel, create_embeddings, default_embeddings, rank
from deerflow.retrieval.embeddings import UNRELATED_TEXTS

TEXTS = ["My daughter has her birthday in June.", "用户喜欢喝咖啡。", ""]


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as server:
        yield server


class Models(ExitStack):
    """Creates models of a server, and closes them."""

    def __init__(self, server: EmbeddingServer) -> None:
        super().__init__()
        self.url = server.url

    def create(self, provider: str = "openai", **more: object) -> EmbeddingModel:
        path, name = ("/v1", MODEL) if provider == "openai" else ("", OLLAMA_MODEL)
        values = {"provider": provider, "model": name, "base_url": self.url + path, **more}
        found = create_embeddings(EmbeddingSettings.model_validate(values))
        assert found is not None
        self.callback(found.close)
        return found


@pytest.fixture
def models(server: EmbeddingServer) -> Iterator[Models]:
    with Models(server) as models:
        yield models


@pytest.mark.parametrize("provider", ["openai", "ollama"])
def test_a_service_embeds_texts_in_their_order(
    server: EmbeddingServer, models: Models, provider: str
) -> None:
    model, expected = models.create(provider), default_embeddings()
    assert expected is not None

    found = model.embed(TEXTS)

    assert abs(found - expected.embed(TEXTS)).max() < 1e-5
    assert 0 < model.unrelated < 0.5
    assert [request[2]["input"] for request in server.requests] == [[*UNRELATED_TEXTS], [*TEXTS[:2], " "]]
    assert rank("When was my child born?", TEXTS, embeddings=model)[0].index == 0


def test_a_key_and_dimensions_are_sent(server: EmbeddingServer, models: Models) -> None:
    model = models.create(api_key="sk-123", dimensions=32)

    assert model.embed(["a b c"]).shape == (1, 32)
    _, headers, body = server.requests[-1]
    assert headers["authorization"] == "Bearer sk-123"
    assert body == {"model": MODEL, "input": ["a b c"], "encoding_format": "float", "dimensions": 32}
    assert model.name != models.create().name


def test_a_busy_service_is_asked_again(server: EmbeddingServer, models: Models) -> None:
    model = models.create()
    server.failures = [(429, {"retry-after": "0"}, {"error": {"message": "slow down"}}), (503, {}, {})]

    assert model.embed(["a"]).shape == (1, 128)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": "unknown"}, "status 404: .*does not exist"),
        ({"base_url": "http://127.0.0.1:9/v1"}, "127.0.0.1:9"),
    ],
)
def test_a_refusal_is_reported_with_address_and_model(
    models: Models, more: dict[str, str], said: str
) -> None:
    with pytest.raises(EmbeddingError, match=said):
        models.create(**more).embed(["a"])


@pytest.mark.parametrize(
    "raw", [b"<html>", b"[]", b"{}", b'{"data": []}', b'{"data": [{"index": 0, "embedding": [null]}]}']
)
def test_a_wrong_answer_is_reported(server: EmbeddingServer, models: Models, raw: bytes) -> None:
    server.raw = raw

    with pytest.raises(EmbeddingError, match="did not embed with"):
        models.create().embed(["a"])


def test_login_in_the_address_is_not_shown(server: EmbeddingServer, models: Models) -> None:
    address = server.url.replace("http://", "http://user:secret-word@") + "/nowhere"

    with pytest.raises(EmbeddingError) as caught:
        models.create(base_url=address).embed(["a"])

    assert "secret-word" not in str(caught.value)


def test_a_service_needs_a_model() -> None:
    with pytest.raises(ValidationError, match=r"needs embeddings\.model"):
        EmbeddingSettings(provider="ollama")


def test_the_settings_select_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert create_embeddings(EmbeddingSettings()) is default_embeddings()
    assert create_embeddings(EmbeddingSettings(provider="none")) is None
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    with pytest.raises(ConfigError, match="install embeddings"):
        create_embeddings(EmbeddingSettings(provider="use"))


def test_waiting_is_bounded(server: EmbeddingServer, models: Models) -> None:
    model = models.create()
    model.embed(["a"])
    server.failures = [(429, {"retry-after": "0.01"}, {})] * 3
    began_at = time.monotonic()

    with pytest.raises(EmbeddingError, match="status 429"):
        model.embed(["a"])

    assert time.monotonic() - began_at < 5


def test_a_service_that_failed_is_left_alone_for_a_while(
    server: EmbeddingServer, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.create()
    model.embed(["a"])
    server.failures = [(401, {}, {"error": {"message": "no such key"}})]

    with pytest.raises(EmbeddingError, match="no such key"):
        model.embed(["a"])
    asked = len(server.requests)
    with pytest.raises(EmbeddingError, match="less than 30 seconds ago"):
        model.embed(["a"])

    assert len(server.requests) == asked
    monkeypatch.setattr("deerflow.retrieval.services.AWAY_SECONDS", 0.0)
    server.failures = [(401, {}, {})]
    monkeypatch.setattr(model, "_away_until", 0.0)
    with pytest.raises(EmbeddingError):
        model.embed(["a"])
    assert model.embed(["a"]).shape == (1, 128)
