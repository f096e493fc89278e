"""The OpenAPI document: every operation is described, and every example is what its schema says."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
from support.documented import Documented, document, operations
from support.gateway import Gateway, parse_sse
from support.model_server import ScriptedModel, text

from deerflow.gateway.openapi import read_texts

TEXTS = read_texts()
NO_BODY = {"202", "204"}
NAME = re.compile(r"[a-z]+(_[a-z]+)+|login|logout")


@pytest.fixture(scope="module")
def documented() -> Documented:
    return Documented()


def bodies(documented: Documented) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every body of the document with its location: of requests, answers and errors."""
    for name, operation in operations():
        for status, response in operation["responses"].items():
            for kind, body in documented.resolved(response).get("content", {}).items():
                yield f"{name} {status} {kind}", body
        for kind, body in operation.get("requestBody", {}).get("content", {}).items():
            yield f"{name} request {kind}", body


def lacking(operation: dict[str, Any]) -> Iterator[str]:
    """Yield what an operation does not say."""
    if not operation["summary"] or not operation["description"].endswith("."):
        yield "description"
    if operation["tags"][0] not in {tag["name"] for tag in TEXTS["tags"]}:
        yield "tag"
    for parameter in operation.get("parameters", ()):
        if not parameter["description"]:
            yield f"description of {parameter['name']}"
    answers = {status: answer for status, answer in operation["responses"].items() if status < "4"}
    if not answers and "always refused" not in operation["summary"]:
        yield "answer"
    for status, answer in answers.items():
        if not answer["description"] or (status not in NO_BODY) != ("content" in answer):
            yield f"body of {status}"
    if not any(status >= "4" for status in operation["responses"]):
        yield "error"


def test_every_operation_says_what_it_does_takes_and_answers() -> None:
    assert {name: found for name, operation in operations() if (found := list(lacking(operation)))} == {}


def test_every_body_has_a_schema_and_an_example_that_fits_it(documented: Documented) -> None:
    empty, wrong = [], []
    for location, body in bodies(documented):
        if not body.get("schema") or "example" not in body:
            empty.append(location)
        elif "multipart" not in location:
            wrong += [
                f"{location}: {problem}" for problem in documented.misfits(body["schema"], body["example"])
            ]

    assert empty == []
    assert wrong == []


def test_names_of_operations_are_unique_and_readable() -> None:
    names = Counter(operation["operationId"] for _, operation in operations())

    assert [name for name, count in names.items() if count > 1 or not NAME.fullmatch(name)] == []


def test_every_reference_leads_somewhere(documented: Documented) -> None:
    references = set(re.findall(rb'"\$ref":"([^"]+)"', orjson.dumps(document())))

    assert [ref for ref in references if not documented.resolved({"$ref": ref.decode()})] == []
    assert len(references) > 100


def test_every_field_is_described_and_every_description_used() -> None:
    schemas = document()["components"]["schemas"]
    fields = {
        f"{name}.{field}": part
        for name, schema in schemas.items()
        for field, part in schema.get("properties", {}).items()
    }
    parameters = {each["name"] for _, operation in operations() for each in operation.get("parameters", ())}

    assert [name for name, part in fields.items() if not part.get("description")] == []
    assert [
        name for name, schema in schemas.items() if not schema.get("description") and "enum" not in schema
    ] == []
    assert TEXTS["fields"].keys() <= fields.keys() | {name.partition(".")[2] for name in fields}
    assert TEXTS["examples"].keys() <= schemas.keys()
    assert TEXTS["parameters"].keys() <= parameters


async def test_the_document_is_built_once_and_answered_as_it_is(
    api: httpx.AsyncClient, site: Gateway
) -> None:
    first = await api.get(f"{site.url}/openapi.json")
    again = await api.get(f"{site.url}/openapi.json")

    assert first.json() == document()
    assert again.content == first.content
    assert first.headers["content-type"] == "application/json"


async def test_streams_and_health_are_as_their_examples(
    api: httpx.AsyncClient, site: Gateway, thread: str, scripted: ScriptedModel
) -> None:
    scripted.will_say(text("Good morning."))
    body = {"input": {"messages": [{"type": "human", "content": "Hello"}]}}
    streamed = await api.post(f"/threads/{thread}/runs/stream", json=body)
    followed = {"channels": ["lifecycle"]}
    async with api.stream("POST", f"/threads/{thread}/stream/events", json=followed) as stream:
        first = await anext(stream.aiter_text())
    health = await api.get(f"{site.url}/health")

    real, shown = parse_sse(streamed.text), parse_sse(TEXTS["media"]["events"]["example"])
    kinds = {kind: data for kind, data, _ in real}
    for kind, data, _ in shown:
        assert kinds[kind] == data if data is None else data.keys() <= kinds[kind].keys()
    assert (real[0][0], real[-1][0]) == (shown[0][0], shown[-1][0])
    (_, event, _), *_ = parse_sse(first)
    (_, example, _), *_ = parse_sse(TEXTS["media"]["protocol_events"]["example"])
    assert event.keys() == example.keys()
    assert event["params"].keys() == example["params"].keys()
    assert health.status_code == 200
