"""Holds real answers against the OpenAPI document."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NoReturn

import httpx
from jsonschema import Draft202012Validator

from deerflow.gateway.app import create_app

PREFIX = re.compile(r"^/api/langgraph(?=/)")


@cache
def document() -> dict[str, Any]:
    """Return the document, as `/openapi.json` has it."""
    return create_app(_never_opened).openapi()


def _never_opened() -> NoReturn:
    raise AssertionError("nothing is served")


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield method and path, and the operation, of the whole document."""
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


class Documented:
    """What the document says about answers; `problems` collects those that do not fit it."""

    def __init__(self) -> None:
        self._document = {**document(), "components": _closed(document()["components"])}
        self._paths = [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path.replace("{path}", ".+"))), path)
            for path in sorted(self._document["paths"], key=_order)
        ]
        self._validators: dict[str, Draft202012Validator] = {}
        self.problems: list[str] = []
        self.proven: set[str] = set()

    @property
    def unproven(self) -> set[str]:
        """The operations that can succeed, and that have not."""
        able = {
            operation["operationId"]
            for _, operation in operations()
            if min(map(int, operation["responses"])) < 400
        }
        return able - self.proven

    async def check(self, response: httpx.Response) -> None:
        """Check an answer when it has come; a client takes this as an event hook."""
        kind = response.headers.get("content-type", "").partition(";")[0]
        if kind == "application/json":  # other bodies may be streams, which the test reads
            await response.aread()
        self.take(response.request.method, response.request.url.path, response.status_code, kind, response)

    def take(self, method: str, path: str, status: int, kind: str, response: httpx.Response) -> None:
        """Note what the document does not say about an answer."""
        found = self.operation(method, path)
        if found is None:
            return
        said = self.resolved(found["responses"].get(str(status)))
        name = f"{method} {path} ({found['operationId']}) {status}"
        if said is None:
            self.problems.append(f"{name}: the status is not documented")
            return
        content = said.get("content", {})
        if kind != "application/json" or not content:
            if kind not in content and kind and "application/octet-stream" not in content:
                self.problems.append(f"{name}: {kind} is not documented")
        elif "application/octet-stream" not in content:
            wrong = list(self.misfits(content["application/json"]["schema"], json.loads(response.content)))
            self.problems += [f"{name}: {one}" for one in wrong]
        if status < 300:
            self.proven.add(found["operationId"])

    def operation(self, method: str, path: str) -> dict[str, Any] | None:
        """Return the operation behind an address."""
        plain = PREFIX.sub("/api", path)
        for pattern, known in self._paths:
            if pattern.fullmatch(plain) and method.lower() in self._document["paths"][known]:
                found: dict[str, Any] = self._document["paths"][known][method.lower()]
                return found
        return None

    def resolved(self, part: Any) -> Any:
        """Return a part of the document, or what it refers to."""
        while isinstance(part, dict) and "$ref" in part:
            names = part["$ref"].removeprefix("#/").split("/")
            part = self._document
            for name in names:
                part = part[name]
        return part

    def misfits(self, schema: Mapping[str, Any], value: Any) -> Iterator[str]:
        """Yield what of a value a schema does not allow; fields that it does not name are such too."""
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            whole = {**schema, "components": self._document["components"]}
            self._validators[key] = Draft202012Validator(whole)
        for error in self._validators[key].iter_errors(value):
            yield f"{error.json_path}: {error.message[:300]}"


def _closed(part: Any) -> Any:
    """Return schemas that allow no fields beside those that they name, unless they say so."""
    if isinstance(part, list):
        return [_closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    closed = {key: _closed(value) for key, value in part.items()}
    if closed.get("type") == "object" and "properties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _order(path: str) -> tuple[bool, int, str]:
    """Sort names before parameters, as the server's routes are."""
    return ("{path}" in path, path.count("{"), path)
