"""`Endpoint`: a path of the server with its permission, parameters, body and answer."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from agentkit.errors import AgentDefinitionError
from agentkit.run.parts.run_tags import checked_tags
from agentkit.server.access import Caller, Permission
from agentkit.server.server_errors import Unprocessable
from agentkit_prompts.context.json_form import to_json
from agentkit_prompts.errors import ContextError
from agentkit_prompts.names import nearest

Handler: TypeAlias = Callable[[Request, Caller], Awaitable[Response]]
_MAX_TEXT = 256


def _storable(kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        to_json(kwargs)
    except ContextError as error:
        raise ValueError("; ".join([problem for _, problem in error.problems])) from None
    return kwargs


Kwargs: TypeAlias = Annotated[dict[str, Any], AfterValidator(_storable)]
"""Additional kwargs that can be stored in a journal: JSON with at most 100 levels."""

Locale: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]{1,8}([-_][A-Za-z0-9]{1,8}){0,7}$")]
"""A language tag, as in RFC 5646, which can also have underscores."""


def _tags(tags: list[str]) -> list[str]:
    try:
        return [*checked_tags(tags)]
    except AgentDefinitionError as error:
        raise ValueError(str(error).removeprefix("tags: ")) from None


Tags: TypeAlias = Annotated[list[str], AfterValidator(_tags)]
"""Tags of a run; see `checked_tags`."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a header."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string", "maxLength": _MAX_TEXT})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path and method."""

    method: str
    path: str
    call: Handler
    summary: str
    permission: Permission | None
    """Required permission of the token; None if no token is required."""
    body: type[BaseModel] | None = None
    """Type of the body; None without a body."""
    answer_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    """JSON Schema of the answer."""
    status: int = 200
    media_type: str = "application/json"
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()


def check_query(endpoint: Endpoint, request: Request) -> None:
    """Refuse unknown query parameters of an endpoint with parameters. Requests of OpenAI's clients may have more.

    Raises:
        Unprocessable: A parameter is unknown. The error lists all unknown parameters.
    """
    if not endpoint.query or endpoint.path.startswith("/v1/"):
        return
    names = [parameter.name for parameter in endpoint.query]
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in names]
    if unknown:
        problems = [f"{name[:_MAX_TEXT]!r:.60}: unknown parameter{nearest(name[:80], names)}" for name in unknown[:8]]
        raise Unprocessable("; ".join(problems), param=unknown[0][:80], code="invalid_query")


def query_int(request: Request, name: str, default: int, minimum: int, maximum: int) -> int:
    """Return an integer of the query.

    Raises:
        Unprocessable: The value is not an integer, or out of range.
    """
    value = request.query_params.get(name)
    if value is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", value, re.ASCII) or not minimum <= int(value) <= maximum:
        raise Unprocessable(
            f"{name}: expected an integer from {minimum} to {maximum}, got {value!r:.40}",
            param=name,
            code="invalid_query",
        )
    return int(value)


def query_text(request: Request, name: str) -> str | None:
    """Return a text of the query; None if it is missing or empty.

    Raises:
        Unprocessable: The text is too long, or has characters that cannot be printed.
    """
    value = request.query_params.get(name)
    if value is not None and (len(value) > _MAX_TEXT or not value.isprintable()):
        raise Unprocessable(
            f"{name}: expected at most {_MAX_TEXT} printable characters", param=name, code="invalid_query"
        )
    return value or None
