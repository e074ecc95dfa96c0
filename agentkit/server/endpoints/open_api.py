"""OpenAPI document of a server, built from its endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import agentkit
from agentkit.server.endpoints.http_endpoint import Endpoint, Parameter

_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
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
_FAILURES = {
    400: "Bad request",
    401: "Missing or unknown token",
    403: "Not permitted",
    404: "Not found",
    405: "Unsupported method",
    409: "Conflict",
    413: "Body too large",
    415: "Not JSON",
    422: "Invalid values",
    429: "Too many requests",
    502: "Failure of the model",
    503: "Server is full, is stopping or has no store",
}


def openapi_document(endpoints: Iterable[Endpoint], *, is_open: bool) -> dict[str, Any]:
    """Return the OpenAPI document of endpoints.

    Args:
        endpoints: The endpoints.
        is_open: True if requests need no token.
    """
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas, is_open)
    return {
        "openapi": "3.1.0",
        "info": {"title": "agentkit", "version": agentkit.__version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(endpoint: Endpoint, schemas: dict[str, Any], is_open: bool) -> dict[str, Any]:
    """Return the operation of an endpoint, and add the schemas of its body to `schemas`."""
    name = f"{endpoint.method.lower()}_{re.sub(r'[^a-z0-9]+', '_', endpoint.path.lower()).strip('_')}"
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": endpoint.summary,
        "responses": _responses(endpoint),
    }
    parameters = _parameters(endpoint)
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        body: dict[str, Any] = endpoint.body.model_json_schema(ref_template=_SCHEMAS + "{model}")
        # A reference of one body must resolve in the whole document: nested definitions move to its components.
        schemas.update(body.pop("$defs", {}))
        schemas[endpoint.body.__name__] = body
        content = {"application/json": {"schema": {"$ref": _SCHEMAS + endpoint.body.__name__}}}
        operation["requestBody"] = {"required": True, "content": content}
    if endpoint.permission is not None and not is_open:
        operation["security"] = [{"token": []}]
        operation["x-agentkit-scope"] = endpoint.permission
    return operation


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    success: dict[str, Any] = {"description": endpoint.summary}
    if endpoint.status != 204:
        schema = dict(endpoint.answer_schema)
        if endpoint.media_type != "application/json":
            schema["type"] = "string"
        success["content"] = {endpoint.media_type: {"schema": schema}}
    responses = {str(endpoint.status): success}
    # /readyz reports its problems with 503 in the same form.
    if endpoint.path == "/readyz":
        responses["503"] = success
    error = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}Error"}}}
    for status, description in _FAILURES.items():
        responses.setdefault(str(status), {"description": description, "content": error})
    return responses


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = _PATH_PARAMETER.findall(endpoint.path)
    return [
        *[_parameter(Parameter(name, ""), "path", required=True) for name in names],
        *[_parameter(parameter, "query") for parameter in endpoint.query],
        *[_parameter(parameter, "header") for parameter in endpoint.headers],
    ]


def _parameter(parameter: Parameter, location: str, *, required: bool = False) -> dict[str, Any]:
    form = {"name": parameter.name, "in": location, "required": required, "schema": dict(parameter.schema)}
    if parameter.description:
        form["description"] = parameter.description
    return form
