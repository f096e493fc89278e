"""Builds the OpenAPI document: FastAPI's description of the routes, with the content of `openapi.yaml`.

Responses are declared at their routes with `answers` and only described: nothing is validated when a route
responds. Routes name their schemas; the file with them is read when the document is built, off the event
loop, and takes no memory before.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import BaseRoute

Json = dict[str, Any]

CHANGED_UNSHOWN: Mapping[int, str] = {204: "Changed; the request had `Prefer: return=minimal`."}
_FILE = Path(__file__).with_name("openapi.yaml")
_SCHEMAS = "#/components/schemas/"
_BODIES = "x-bodies"
"""Key of the names of bodies, and placeholder of their description, until the document is built."""
_SIMPLE: Mapping[str, tuple[str, str]] = {"int": ("integer", "The number."), "None": ("null", "Null.")}
_PLAIN: Mapping[Any, Any] = {"integer": 1, "number": 1.0, "boolean": True, "string": "text", "object": {}}
"""Example values of types without further constraints."""


def answers(
    body: str | tuple[str, ...] | None,
    *errors: int,
    status: int = 200,
    empty: Mapping[int, str] | None = None,
    own_errors: Mapping[int, str] | None = None,
    says: str = "",
) -> dict[str, Any]:
    """Return the decorator arguments that describe a route's responses.

    Args:
        body: The name of a schema or medium in `openapi.yaml`, `list[Name]`, `Name | None` or `int`; a tuple
            of several; None for no body.
        errors: Statuses of the route's own errors, in addition to those of all routes.
        empty: Further statuses and their meaning; of them only 206 has a body, a part of the same one.
        own_errors: Schemas of errors that are not `Error`, by status.
        says: The description of the response.
    """
    bodies = body if isinstance(body, tuple) else (body,) if body else ()
    responses: dict[int, Json] = {status: {"description": says or _BODIES, _BODIES: bodies}}
    for code, meaning in (empty or {}).items():
        responses[code] = {"description": meaning}
        if code == HTTPStatus.PARTIAL_CONTENT:
            responses[code][_BODIES] = bodies
    responses |= {code: {"description": HTTPStatus(code).phrase} for code in errors}
    responses |= {
        code: {"description": _BODIES, _BODIES: (name,)} for code, name in (own_errors or {}).items()
    }
    # Routes build their own responses: FastAPI must not describe an empty JSON body beside ours.
    return {"status_code": status, "responses": responses, "response_class": Response}


def refuses(status: int, example: Json, schema: str = "Error") -> dict[str, Any]:
    """Return the decorator arguments of a route that exists for old clients and always refuses."""
    described = answers(schema, status=status, says="Always: the feature is not available on this server.")
    described["responses"][status]["example"] = example
    return described


def request_body(name: str) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that parses its body itself."""
    return {"requestBody": {_BODIES: name}}


def operation_id(route: APIRoute) -> str:
    """Return the name of a route's function, which generated clients use."""
    return route.name


def read_texts() -> Json:
    """Read `openapi.yaml`."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where PyYAML has it
    texts: Json = yaml.load(_FILE.read_bytes(), Loader=loader)
    return texts


def build_document(routes: Sequence[BaseRoute], *, title: str, version: str) -> Json:
    """Build the document; takes a part of a second."""
    texts = read_texts()
    document = get_openapi(
        title=title, version=version, description=texts["description"], tags=texts["tags"], routes=routes
    )
    components = document["components"]
    components["schemas"] = _schemas(components["schemas"], texts)
    components["responses"] = {
        _name(status): _error(status, error) for status, error in texts["errors"].items()
    }
    for path in document["paths"].values():
        for operation in path.values():
            _complete(operation, components["schemas"], texts)
    return document


def _schemas(requests: Json, texts: Json) -> Json:
    """Return all schemas: those of requests, from FastAPI, and those of responses."""
    unused = {"HTTPValidationError", "ValidationError"}
    schemas = {name: schema for name, schema in requests.items() if name not in unused} | texts["schemas"]
    fields = texts["fields"]
    for name, schema in schemas.items():
        for field, part in schema.get("properties", {}).items():
            if not part.get("description"):
                part["description"] = fields.get(f"{name}.{field}") or fields.get(field, "")
        if name in texts["examples"]:
            schema["example"] = texts["examples"][name]
    return dict(sorted(schemas.items()))


def _error(status: int, error: Json) -> Json:
    if "example" not in error:
        return error
    schema = _schema("InvalidRequest" if status == 422 else "Error")
    content = {"application/json": {"schema": schema, "example": error["example"]}}
    return {"description": error["description"], "content": content}


def _name(status: int) -> str:
    return "".join(word.capitalize() for word in HTTPStatus(status).phrase.replace("-", " ").split())


def _schema(body: str) -> Json:
    """Return the schema of a body as `answers` takes it; schemas of the file by reference."""
    if body.startswith("list[") and body.endswith("]"):
        return {"type": "array", "items": _schema(body.removeprefix("list[").removesuffix("]"))}
    if " | " in body:
        return {"anyOf": [_schema(part) for part in body.split(" | ")]}
    return {"type": _SIMPLE[body][0]} if body in _SIMPLE else {"$ref": f"{_SCHEMAS}{body}"}


def _meaning(body: str, texts: Json) -> str:
    """Describe a body as `answers` takes it in words."""
    if body.startswith("list[") and body.endswith("]"):
        return f"A list of these. {_meaning(body.removeprefix('list[').removesuffix(']'), texts)}"
    if " | " in body:
        return " Or: ".join(_meaning(part, texts) for part in body.split(" | "))
    if body in _SIMPLE:
        return _SIMPLE[body][1]
    described: str = (texts["media"].get(body) or texts["schemas"][body])["description"]
    return described


def _complete(operation: Json, schemas: Json, texts: Json) -> None:
    """Add what operations share: errors, bodies, examples, descriptions of parameters."""
    operation["summary"] = operation.get("description", "").partition("\n")[0].rstrip(".")
    for parameter in operation.get("parameters", ()):
        if not parameter.get("description"):
            parameter["description"] = texts["parameters"].get(parameter["name"], "")
    request = operation.get("requestBody", {})
    if name := request.get(_BODIES):
        operation["requestBody"] = request = {"required": True, "content": texts["requests"][name]}
    for media in request.get("content", {}).values():
        media.setdefault("example", example_of(media["schema"], schemas))
    responses = operation["responses"]
    for status in (403, 500, *((413, 415) if "application/json" in request.get("content", {}) else ())):
        responses.setdefault(str(status), {})
    for status, response in responses.items():
        bodies = response.pop(_BODIES, ())
        if int(status) >= 400 and not bodies:
            responses[status] = {"$ref": f"#/components/responses/{_name(int(status))}"}
            continue
        if response["description"] == _BODIES:
            meanings = " Or: ".join(_meaning(body, texts) for body in bodies)
            response["description"] = meanings or "No content."
        example = response.pop("example", None)
        if bodies:
            response["content"] = dict(_content(body, example, schemas, texts) for body in bodies)
    operation["responses"] = dict(sorted(responses.items()))


def _content(body: str, example: Any, schemas: Json, texts: Json) -> tuple[str, Json]:
    if media := texts["media"].get(body):
        return media["type"], {"schema": media["schema"], "example": media["example"]}
    schema = _schema(body)
    return "application/json", {"schema": schema, "example": example or example_of(schema, schemas)}


def example_of(schema: Json, schemas: Json) -> Any:
    """Return an example of a schema, built from the examples of its parts."""
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].removeprefix(_SCHEMAS)], schemas)
    own = [schema[key] for key in ("example", "const") if key in schema]
    own += [schema[key][0] for key in ("examples", "enum") if schema.get(key)]
    if own:
        return own[0]
    if choices := schema.get("anyOf"):
        return example_of(choices[0], schemas)
    kinds = schema.get("type")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    if kind == "array":
        return [example_of(schema["items"], schemas)]
    if isinstance(more := schema.get("additionalProperties"), dict):
        return {"name": example_of(more, schemas)}
    if "properties" in schema:
        whole = {name: example_of(part, schemas) for name, part in schema["properties"].items()}
        needed = schema.get("required", ())
        return {name: part for name, part in whole.items() if part is not None or name in needed}
    return _PLAIN[kind]
