"""The server's OpenAPI 3.1 description, generated from the routes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from kedge.domain.values import EXTRA_KEY
from kedge.server.requests import NoBody
from kedge.server.router import Route

Json: TypeAlias = dict[str, Any]

_REFERENCE = "#/components/schemas/{name}"
_KINDS = {"sessionID": "ses", "messageID": "msg", "partID": "prt", "permissionID": "per"}
"""The prefixes of the ids in a path."""
_DIRECTORY: Json = {
    "name": "directory",
    "in": "query",
    "required": False,
    "description": "Where the client works; else where the server was started.",
    "schema": {"type": "string"},
}


class ErrorData(msgspec.Struct, frozen=True):
    """Details of an error."""

    message: str


class NamedError(msgspec.Struct, frozen=True):
    """An error with its name."""

    name: str
    data: ErrorData


class TaggedError(msgspec.Struct, frozen=True):
    """An error in OpenCode's newer form."""

    tag: str = msgspec.field(name="_tag")
    message: str | None = None


_ERRORS = (NamedError, TaggedError)


def describe(routes: Sequence[Route], version: str) -> Json:
    """The whole description, ready to be sent."""
    schemas, components = _schemas(routes)
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kedge",
            "version": version,
            "description": "OpenCode's session protocol; what kedge adds has `x-kedge`.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "token": {"type": "apiKey", "in": "query", "name": "auth_token"},
            },
        },
        # A server without a password requires no authentication.
        "security": [{}, {"basic": []}, {"token": []}],
    }


def _schemas(routes: Iterable[Route]) -> tuple[Mapping[Any, Json], dict[str, Json]]:
    """The schema of each type, and the shared components by name."""
    types = list(dict.fromkeys([*_ERRORS, *(each for route in routes for each in _types(route))]))
    found, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    for component in components.values():
        _open(component)
    return dict(zip(types, found, strict=True)), components


def _types(route: Route) -> Iterator[Any]:
    if route.body is not NoBody:
        yield route.body
    if route.answer not in (None, bytes):
        yield route.answer


def _open(component: Json) -> None:
    """Declare that values keep unknown keys, in place of the field that holds them."""
    if EXTRA_KEY in component.get("properties", {}):
        del component["properties"][EXTRA_KEY]
        component["additionalProperties"] = True


def _operation(route: Route, schemas: Mapping[Any, Json]) -> Json:
    operation: Json = {
        "operationId": route.operation,
        "tags": [route.path.split("/")[1] or "kedge"],
        "summary": route.summary,
        "parameters": [*_in_path(route), *_in_query(route)],
        "responses": _responses(route, schemas),
    }
    if route.operation.startswith("kedge."):
        operation["x-kedge"] = True
    if route.body is not NoBody:
        operation["requestBody"] = {
            "required": not route.body_may_be_absent,
            "content": {"application/json": {"schema": schemas[route.body]}},
        }
    return operation


def _in_path(route: Route) -> Iterator[Json]:
    for name in route.parameters:
        schema = {"type": "string"}
        if name in _KINDS:
            schema["pattern"] = f"^{_KINDS[name]}"
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(route: Route) -> Iterator[Json]:
    _, named = msgspec.json.schema_components([route.query])
    query = named[route.query.__name__]
    for name, schema in query.get("properties", {}).items():
        yield {
            "name": name,
            "in": "query",
            "required": name in query["required"],
            "schema": _said(schema),
        }
    if "directory" not in query.get("properties", {}):
        yield _DIRECTORY


def _said(schema: Json) -> Json:
    """A schema for a query parameter, where null cannot be written."""
    kinds: list[Json] = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    if len(kinds) == 1:
        return kinds[0]
    return {key: each for key, each in schema.items() if (key, each) != ("default", None)}


def _responses(route: Route, schemas: Mapping[Any, Json]) -> Json:
    answer: Json = {"description": route.summary or "Done."}
    if route.answer is bytes:
        answer["content"] = {route.media_type: {"schema": {"type": "string"}}}
    elif route.answer is not None:
        answer["content"] = {route.media_type: {"schema": schemas[route.answer]}}
    errors = [schemas[error] for error in _ERRORS]
    refusal = {"application/json": {"schema": {"anyOf": errors}}}
    return {
        str(route.status): answer,
        "4XX": {"description": "The request cannot be carried out.", "content": refusal},
        "5XX": {"description": "The server cannot do that now, or not yet.", "content": refusal},
    }
