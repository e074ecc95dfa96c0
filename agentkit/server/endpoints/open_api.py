"""The OpenAPI description of a server, made of its endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import agentkit
from agentkit.server.endpoints.http_endpoint import Endpoint, Parameter

__all__ = ["described"]

_PLACE = re.compile(r"\{(\w+)\}")
_SCHEMAS = "#/components/schemas/"
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_FAILURES = {400: "Bad request", 401: "No token", 403: "Not allowed", 404: "Not found", 405: "Another method"}
_FAILURES |= {409: "Conflict", 413: "Too large", 415: "Not JSON", 422: "Invalid values", 429: "Too many requests"}
_FAILURES |= {502: "The model failed", 503: "Not now"}


def described(endpoints: Iterable[Endpoint], *, is_open: bool) -> dict[str, Any]:
    """Return the description.

    Args:
        endpoints: The endpoints.
        is_open: Whether no token is asked for.
    """
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, Any] = {}
    for one in endpoints:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schemas, is_open)
    return {
        "openapi": "3.1.0",
        "info": {"title": "agentkit", "version": agentkit.__version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(one: Endpoint, schemas: dict[str, Any], is_open: bool) -> dict[str, Any]:
    name = f"{one.method.lower()}_{re.sub(r'[^a-z0-9]+', '_', one.path.lower()).strip('_')}"
    answer: dict[str, Any] = {"description": one.summary}
    if one.status != 204:
        schema = one.answers if one.media == "application/json" else {**one.answers, "type": "string"}
        answer["content"] = {one.media: {"schema": schema}}
    failed = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}Error"}}}
    responses = {str(one.status): answer}
    if one.path == "/readyz":
        responses["503"] = answer
    for status, what in _FAILURES.items():
        responses.setdefault(str(status), {"description": what, "content": failed})
    operation: dict[str, Any] = {"operationId": name, "summary": one.summary, "responses": responses}
    parameters = [_parameter(Parameter(place, ""), "path", required=True) for place in _PLACE.findall(one.path)]
    parameters += [_parameter(parameter, "query") for parameter in one.query]
    parameters += [_parameter(parameter, "header") for parameter in one.headers]
    if parameters:
        operation["parameters"] = parameters
    if one.body is not None:
        body: dict[str, Any] = one.body.model_json_schema(ref_template=_SCHEMAS + "{model}")
        schemas.update(body.pop("$defs", {}))
        schemas[one.body.__name__] = body
        content = {"application/json": {"schema": {"$ref": _SCHEMAS + one.body.__name__}}}
        operation["requestBody"] = {"required": True, "content": content}
    if one.permission is not None and not is_open:
        operation["security"] = [{"token": []}]
        operation["x-agentkit-scope"] = one.permission
    return operation


def _parameter(parameter: Parameter, where: str, *, required: bool = False) -> dict[str, Any]:
    found = {"name": parameter.name, "in": where, "required": required, "schema": dict(parameter.schema)}
    return {**found, "description": parameter.description} if parameter.description else found
