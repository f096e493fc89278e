"""Builds the OpenAPI document: FastAPI's description of the routes, with responses, errors and examples.

Responses are declared at their routes with `answers` and only described: nothing is validated when a route
responds. Routes name their models instead of importing them: the models are loaded, and become schemas, when
the document is built, off the event loop; before, they take no memory.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib import import_module
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response
from starlette.routing import BaseRoute

from deerflow.gateway.api_fields import FIELDS, PARAMETERS, REQUEST_EXAMPLES, TAGS
from deerflow.gateway.protocol.filters import CHANNELS

Json = dict[str, Any]

_SCHEMAS = "#/components/schemas/"
_ABOUT = """\
Threads, runs and everything around them, for DeerFlow's and LangGraph's clients. All routes below `/api` also
answer below `/api/langgraph`, where LangGraph's clients expect them. Errors have a `detail` for people and,
where programs need more than the status, a `code`. Lists have the header `X-Pagination-Total`, and
`X-Pagination-Next` with the `offset` of the next page where there is one."""


CHANGED_UNSHOWN: Mapping[int, str] = {204: "Changed; the request had `Prefer: return=minimal`."}


@dataclass(frozen=True, slots=True)
class Media:
    """A body that is not JSON."""

    type: str
    meaning: str
    example: str
    schema: tuple[tuple[str, str], ...] = (("type", "string"),)


_WORDS: Mapping[Any, str] = {"integer": "The number.", "null": "Null."}
_SIMPLE: Mapping[str, str] = {"int": "integer", "None": "null"}
_OF_MODEL = "{model}"
"""Stands in a response's description for that of its model, until the document is built."""
_PLAIN: Mapping[Any, Any] = {"integer": 1, "number": 1.0, "boolean": True, "string": "text", "object": {}}
"""Example values of types without further constraints."""


def _request(media_type: str, schema: Json, example: Any) -> Json:
    """Describe a request body that a route reads by itself."""
    return {
        "requestBody": {"required": True, "content": {media_type: {"schema": schema, "example": example}}}
    }


EVENTS = Media(
    "text/event-stream",
    "The events, as server-sent events: `metadata` first, `end` last.",
    'event: metadata\ndata: {"run_id":"e17531a3-6b40-4002-ba80-f62c5f6b300a","thread_id":"t1","attempt":1}\n'
    "id: 1794965609022-0\n\n"
    'event: values\ndata: {"messages":[{"content":"Hello","additional_kwargs":{},"response_metadata":{},'
    '"type":"human","name":null,"id":"db05802b-d5df-4c58-8541-043f4b01efbb"}],"title":"Hello"}\n'
    "id: 1794965609462-1\n\n"
    "event: end\ndata: null\nid: 1794965609494-8\n\n",
)
PROTOCOL_EVENTS = Media(
    "text/event-stream",
    "The events, as server-sent events.",
    'event: lifecycle\ndata: {"type":"event","event_id":"e17531a3-6b40-4002-ba80-f62c5f6b300a:0.0","seq":1,'
    '"method":"lifecycle","params":{"namespace":[],"timestamp":1794965609022,'
    '"data":{"event":"running","graph_name":"lead_agent"}}}\nid: 1\n\n',
)
FILE = Media(
    "application/octet-stream", "The file.", "# Report\n", (("type", "string"), ("format", "binary"))
)
ZIP = Media(
    "application/zip", "All files in one archive.", "PK...", (("type", "string"), ("format", "binary"))
)
METRICS = Media(
    "text/plain",
    "The metrics.",
    "# HELP deerflow_runs_total Runs that ended here, by status.\n"
    '# TYPE deerflow_runs_total counter\ndeerflow_runs_total{status="success"} 1.0\n',
)

UPLOAD_FORM = _request(
    "multipart/form-data",
    {
        "type": "object",
        "required": ["files"],
        "properties": {
            "files": {
                "type": "array",
                "items": {"type": "string", "format": "binary"},
                "description": "The files, each in a field of this name.",
            }
        },
    },
    {"files": ["queues.pdf"]},
)
COMMAND_BODY = _request(
    "application/json",
    {
        "type": "object",
        "required": ["id", "method"],
        "properties": {
            "id": {"type": "integer", "description": "Id that the answer repeats."},
            "method": {"type": "string", "description": "What to do."},
            "params": {"type": "object", "description": "What the method needs."},
        },
    },
    {
        "id": 1,
        "method": "run.start",
        "params": {
            "assistant_id": "lead_agent",
            "input": {"messages": [{"type": "human", "content": "Hello"}]},
        },
    },
)
FILTER_BODY = _request(
    "application/json",
    {
        "type": "object",
        "required": ["channels"],
        "properties": {
            "channels": {
                "type": "array",
                "items": {"type": "string"},
                "description": f"Any of {', '.join(CHANNELS)}, or `custom:NAME`.",
            },
            "namespaces": {
                "type": "array",
                "items": {"type": "array", "items": {"type": "string"}},
                "description": "Only events below these namespaces.",
            },
            "depth": {"type": "integer", "description": "How far below them."},
            "since": {"type": "integer", "description": "Number of the last event that the client has."},
        },
    },
    {"channels": ["messages", "lifecycle"], "since": 0},
)

_ERRORS: Mapping[int, tuple[str, str, str]] = {
    400: (
        "The request cannot be carried out; `detail` names the value.",
        "invalid_input",
        "thread id 'no thread' cannot be used: 1 to 64 letters, digits, '-' and '_'",
    ),
    403: (
        "The request comes from a host or page that may not use this server, or wants what nobody may have.",
        "path_refused",
        "'mnt/user-data/../../etc/passwd' is not below /mnt/user-data",
    ),
    404: ("The thing does not exist, or is another user's.", "not_found", "upload 'a.txt' not found"),
    409: (
        "The request conflicts with what is there, such as a run in flight.",
        "conflict",
        "thread 't1' exists already",
    ),
    412: (
        "The thing has changed since it was read.",
        "changed",
        "'report.md' has changed meanwhile; read it again",
    ),
    413: (
        "The body or the result is too large.",
        "too_large",
        "'big' is larger than 1,000 bytes (uploads.max_file_size)",
    ),
    415: (
        "The body is not of the needed type.",
        "unsupported_type",
        "Content-Type is 'text/plain': send the body as JSON, with Content-Type: application/json",
    ),
    416: ("The file has no such range; the header `Content-Range` has its size.", "", ""),
    500: (
        "The server failed; its log says why.",
        "internal",
        "The server failed unexpectedly; its log says why.",
    ),
    501: (
        "The feature is off on this server.",
        "",
        "nothing is remembered here: memory.manager_class is noop in config.yaml",
    ),
    502: ("A server behind this one failed.", "mcp_failed", "MCP server 'demo' did not answer"),
    503: (
        "The feature is not available now.",
        "",
        "slack cannot be connected: this server connects to no chat service",
    ),
}


def answers(
    body: str | Media | tuple[str | Media, ...] | None,
    *errors: int,
    status: int = 200,
    empty: Mapping[int, str] | None = None,
    own_errors: Mapping[int, str] | None = None,
    says: str = "",
) -> dict[str, Any]:
    """Return the decorator arguments that describe a route's responses.

    Args:
        body: The name of a model in `api_models`, `list[Model]`, `Model | None`, `int` or a `Media`; a tuple
            of several; None for no body.
        errors: Statuses of the route's own errors, in addition to those of all routes.
        empty: Further statuses and their meaning; of them only 206 has a body, a part of the same one.
        own_errors: Models of errors that are not `Error`, by status.
        says: The description of the response.
    """
    bodies = body if isinstance(body, tuple) else () if body is None else (body,)
    meanings = [each.meaning if isinstance(each, Media) else _OF_MODEL for each in bodies]
    answer: Json = {"description": says or " Or: ".join(meanings) or "No content."}
    if bodies:
        answer["content"] = dict(map(_content, bodies))
    responses: dict[int, Json] = {status: answer}
    responses |= {code: {"description": meaning} for code, meaning in (empty or {}).items()}
    if HTTPStatus.PARTIAL_CONTENT in responses:
        responses[HTTPStatus.PARTIAL_CONTENT]["content"] = answer["content"]
    responses |= {code: {"description": HTTPStatus(code).phrase} for code in errors}
    for code, error in (own_errors or {}).items():
        responses[code] = {"description": _OF_MODEL, "content": dict([_content(error)])}
    # Routes build their own responses: FastAPI must not describe an empty JSON body beside ours.
    return {"status_code": status, "responses": responses, "response_class": Response}


def refuses(status: int, example: Json, model: str = "Error") -> dict[str, Any]:
    """Return the decorator arguments of a route that exists for old clients and always refuses."""
    described = answers(model, status=status, says="Always: the feature is not available on this server.")
    described["responses"][status]["content"]["application/json"]["example"] = example
    return described


def operation_id(route: APIRoute) -> str:
    """Return the name of a route's function, which generated clients use."""
    return route.name


def build_document(routes: Sequence[BaseRoute], *, title: str, version: str) -> Json:
    """Build the document; takes most of a second."""
    document = get_openapi(
        title=title, version=version, description=_ABOUT, tags=list(map(dict, TAGS)), routes=routes
    )
    components = document["components"]
    components["schemas"] = _schemas(components["schemas"])
    components["responses"] = dict(_shared_errors())
    for path in document["paths"].values():
        for operation in path.values():
            _complete(operation, components)
    return document


def _content(body: str | Media) -> tuple[str, Json]:
    if isinstance(body, Media):
        return body.type, {"schema": dict(body.schema), "example": body.example}
    return "application/json", {"schema": _schema(body)}


def _schema(body: str) -> Json:
    """Return the schema of a type as `answers` takes it; models by reference."""
    if body.startswith("list[") and body.endswith("]"):
        return {"type": "array", "items": _schema(body.removeprefix("list[").removesuffix("]"))}
    if " | " in body:
        return {"anyOf": [_schema(part) for part in body.split(" | ")]}
    return {"type": _SIMPLE[body]} if body in _SIMPLE else {"$ref": f"{_SCHEMAS}{body}"}


def _meaning(schema: Json, schemas: Json) -> str:
    """Describe a body in words: the first line of its model's docstring."""
    if "items" in schema:
        return f"A list of these. {_meaning(schema['items'], schemas)}"
    if "anyOf" in schema:
        return " Or: ".join(_meaning(part, schemas) for part in schema["anyOf"])
    if "$ref" not in schema:
        return _WORDS[schema["type"]]
    model: Json = schemas[schema["$ref"].removeprefix(_SCHEMAS)]
    text: str = model["description"]
    return text.partition("\n")[0]


def _schemas(requests: Json) -> Json:
    """Return all schemas: those of requests, from FastAPI, and those of responses."""
    models = [
        model
        for model in vars(import_module("deerflow.gateway.api_models")).values()
        if inspect.isclass(model) and issubclass(model, BaseModel) and model is not BaseModel
    ]
    _, found = models_json_schema(
        [(model, "serialization") for model in models], ref_template=f"{_SCHEMAS}{{model}}"
    )
    unused = {"HTTPValidationError", "ValidationError", "Answer", "Open"}
    schemas = {name: schema for name, schema in requests.items() if name not in unused}
    schemas |= {name: schema for name, schema in found["$defs"].items() if name not in unused}
    for name, schema in schemas.items():
        for field, part in schema.get("properties", {}).items():
            if not part.get("description"):
                part["description"] = FIELDS.get(f"{name}.{field}") or FIELDS.get(field, "")
        if name in REQUEST_EXAMPLES:
            schema["example"] = REQUEST_EXAMPLES[name]
    return dict(sorted(schemas.items()))


def _shared_errors() -> Iterator[tuple[str, Json]]:
    for status, (meaning, code, detail) in _ERRORS.items():
        example = {"detail": detail, **({"code": code} if code else {})}
        yield _name(status), _error(meaning, "Error", example) if detail else {"description": meaning}
    invalid: Json = {
        "detail": [
            {
                "type": "greater_than_equal",
                "loc": ["body", "limit"],
                "msg": "Input should be greater than or equal to 1",
                "input": 0,
            }
        ],
        "message": "body limit is 0: Input should be greater than or equal to 1",
        "code": "invalid_input",
    }
    yield _name(422), _error("A value of the request has the wrong form.", "InvalidRequest", invalid)


def _error(meaning: str, model: str, example: Json) -> Json:
    return {
        "description": meaning,
        "content": {"application/json": {"schema": _schema(model), "example": example}},
    }


def _name(status: int) -> str:
    return "".join(word.capitalize() for word in HTTPStatus(status).phrase.replace("-", " ").split())


def _complete(operation: Json, components: Json) -> None:
    """Add what operations share: errors, examples, descriptions of parameters."""
    operation["summary"] = operation.get("description", "").partition("\n")[0].rstrip(".")
    for parameter in operation.get("parameters", ()):
        if not parameter.get("description"):
            parameter["description"] = PARAMETERS.get(parameter["name"], "")
    takes_json = "application/json" in operation.get("requestBody", {}).get("content", {})
    responses = operation["responses"]
    for status in (403, 500, *((413, 415) if takes_json else ())):
        responses.setdefault(str(status), {})
    for status, response in list(responses.items()):
        if int(status) >= 400 and "application/json" not in _own_content(response):
            responses[status] = {"$ref": f"#/components/responses/{_name(int(status))}"}
            continue
        content = response.get("content", {})
        if _OF_MODEL in response["description"]:
            meaning = _meaning(content["application/json"]["schema"], components["schemas"])
            response["description"] = response["description"].replace(_OF_MODEL, meaning)
        for media in content.values():
            media.setdefault("example", example_of(media["schema"], components["schemas"]))
    for media in operation.get("requestBody", {}).get("content", {}).values():
        media.setdefault("example", example_of(media["schema"], components["schemas"]))
    operation["responses"] = dict(sorted(responses.items()))


def _own_content(response: Json) -> Json:
    """Return the content that a route declared itself, without FastAPI's default 422."""
    content: Json = response.get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    return {} if schema.get("$ref", "").endswith("HTTPValidationError") else content


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
    if schema.get("type") == "array":
        return [example_of(schema["items"], schemas)]
    if isinstance(more := schema.get("additionalProperties"), dict):
        return {"name": example_of(more, schemas)}
    if "properties" in schema:
        whole = {name: example_of(part, schemas) for name, part in schema["properties"].items()}
        needed = schema.get("required", ())
        return {name: part for name, part in whole.items() if part is not None or name in needed}
    return _PLAIN[schema.get("type")]
