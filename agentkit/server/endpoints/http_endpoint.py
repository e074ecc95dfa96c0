"""`Endpoint`: one path of the server: who may ask, what it takes, and what it answers with."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel
from starlette.requests import Request
from starlette.responses import Response

from agentkit.server.access import Caller, Permission
from agentkit.server.server_errors import Unprocessable
from agentkit_prompts.context.json_form import to_json
from agentkit_prompts.errors import ContextError

__all__ = ["Call", "Endpoint", "Kwargs", "Parameter", "checked_name", "number", "text"]

Call: TypeAlias = Callable[[Request, Caller], Awaitable[Response]]
_NAME = re.compile(r"[A-Za-z0-9_~@:+=-][A-Za-z0-9._~@:+=-]{0,127}")
_MAX_TEXT = 256


def _storable(kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        to_json(kwargs)
    except ContextError as error:
        raise ValueError("; ".join([what for _, what in error.problems])) from None
    return kwargs


Kwargs: TypeAlias = Annotated[dict[str, Any], AfterValidator(_storable)]
"""Additional kwargs that a journal can hold: they nest 100 levels at most."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string", "maxLength": _MAX_TEXT})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path and method."""

    method: str
    path: str
    call: Call
    summary: str
    permission: Permission | None
    """What the token must allow; None where no token is needed."""
    body: type[BaseModel] | None = None
    """What the body is, or None."""
    answers: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    """JSON Schema of the answer."""
    status: int = 200
    media: str = "application/json"
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()


def checked_name(name: str, what: str) -> str:
    """Return a name that clients give, of a session or a user: it holds nothing that could be a path.

    Raises:
        Unprocessable: It is empty, too long, or holds other characters than letters, digits and `._~@:+=-`.
    """
    if not _NAME.fullmatch(name):
        raise Unprocessable(
            f"{what}: expected up to 128 of A-Z a-z 0-9 . _ ~ @ : + = -, no dot first, got {name!r:.60}",
            param=what,
            code="invalid_name",
        )
    return name


def number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """Return a whole number out of the query.

    Raises:
        Unprocessable: It is not a whole number, or out of range.
    """
    given = request.query_params.get(name)
    if given is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", given, re.ASCII) or not least <= int(given) <= most:
        raise Unprocessable(
            f"{name}: expected a whole number from {least} to {most}, got {given!r:.40}",
            param=name,
            code="invalid_query",
        )
    return int(given)


def text(request: Request, name: str) -> str | None:
    """Return text out of the query; None where it is not given.

    Raises:
        Unprocessable: It is too long, or holds control characters.
    """
    given = request.query_params.get(name)
    if given is not None and (len(given) > _MAX_TEXT or not given.isprintable()):
        raise Unprocessable(
            f"{name}: expected at most {_MAX_TEXT} printable characters", param=name, code="invalid_query"
        )
    return given or None
