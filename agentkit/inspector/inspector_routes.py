"""The routes of the inspector: its page, and the JSON that the page reads."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from agentkit.errors import AgentError
from agentkit.ground.contained import contained
from agentkit.ground.graceful_shutdown.ended_requests import STOPPED, EndedRequests
from agentkit.ground.request_json import request_json
from agentkit.inspector import answers, page_requests, play_answers, run_lists
from agentkit.inspector.page_files import page_files
from agentkit.inspector.source import InspectorSource, SourceOf
from agentkit.models.model_errors import ModelError
from agentkit.runs.run_errors import DatabaseUnavailable
from agentkit_memory.errors import InvalidArgument, NotFound, StoreError
from agentkit_prompts.errors import ContextError, KwargsError, PromptError
from agentkit_prompts.invalid_values import JSON_WORDS, invalid_values, json_value
from agentkit_tools.errors import ToolError

PREFIX = "/inspector"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_MAX_BODY = 4_000_000
"""Maximum bytes of a request; the editor of the page sends whole prompts."""
_BODY_SECONDS = 30.0
"""Maximum seconds until a request has arrived."""
_MAX_PROBLEMS = 50
"""Maximum number of problems in an answer."""
_MAX_MESSAGE = 4_000
"""Maximum characters of an error message."""
_SHOWN_ERRORS = (AgentError, PromptError, ToolError, InvalidArgument, NotFound)
"""Errors whose message is sent to the page."""
_UNAVAILABLE = (DatabaseUnavailable, ModelError, StoreError)
"""Errors whose message can name files and addresses of the machine: the message is only logged."""
_log = logging.getLogger("agentkit")

Json = dict[str, Any]
Body = TypeVar("Body", bound=BaseModel)
_Answer = Callable[[InspectorSource, Request], Awaitable[Json]]


def routes(source: SourceOf) -> list[Route]:
    """Return the routes under `/inspector`, for a Starlette application.

    The page and its files contain no data, so that they need no token. A request under `/inspector/api` is answered
    from the source of its caller.

    Args:
        source: Returns the source of the caller of a request, or raises `HTTPException` with status 401.
    """
    middleware = [
        Middleware(EndedRequests, answer=stopped),
        Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=3),
    ]
    # At the first request: compressing the files takes long, and most servers never show the page.
    files = lru_cache(maxsize=1)(page_files)

    async def file(request: Request) -> Response:
        """Return a file of the page. The names are a fixed list, so that no path leads to other files."""
        page_file = files().get(request.path_params.get("name", "index.html"))
        if page_file is None:
            return Response("not found", 404, _HEADERS, "text/plain")
        caching = "no-cache"
        if request.url.query == page_file.version:
            caching = "max-age=31536000, immutable"
        headers = {**_HEADERS, "cache-control": caching, "vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(page_file.plain, 200, headers, page_file.media_type)
        return Response(page_file.packed, 200, {**headers, "content-encoding": "gzip"}, page_file.media_type)

    def api(path: str, method: str, answer: _Answer) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                caller_source = source(request)
                if inspect.isawaitable(caller_source):
                    caller_source = await caller_source
                return _json(await contained(answer(caller_source, request)))
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:
                return _error_response(error)

        return Route(f"{PREFIX}/api/{path}", endpoint, methods=[method], middleware=middleware)

    def get(path: str, answer: _Answer) -> Route:
        return api(path, "GET", answer)

    def post(path: str, body: type[Body], answer: Callable[[InspectorSource, Body], Awaitable[Json]]) -> Route:
        async def read(caller_source: InspectorSource, request: Request) -> Json:
            return await answer(caller_source, await _read(request, body))

        return api(path, "POST", read)

    return [
        Route(PREFIX, _to_page),
        Route(f"{PREFIX}/", file),
        get("overview", lambda source, request: answers.overview(source, is_whole="all" in request.query_params)),
        get(
            "run",
            lambda source, request: answers.run_answer(
                source, _parameter(request, "id"), is_beginning="beginning" in request.query_params
            ),
        ),
        get("agent", lambda source, request: answers.agent_answer(source, _parameter(request, "name"))),
        get(
            "evaluation",
            lambda source, request: answers.evaluation_answer(
                source, _parameter(request, "name"), request.query_params.get("before")
            ),
        ),
        get(
            "runs",
            lambda source, request: run_lists.list_answer(
                source, _validated(page_requests.ListRequest, dict(request.query_params))
            ),
        ),
        get("session", lambda source, request: answers.session_answer(source, *_name_and_turn(request))),
        get("turns", lambda source, request: answers.turns_answer(source, *_name_and_start(request))),
        post("compose", page_requests.CompositionRequest, answers.compose_answer),
        post("message", page_requests.CompositionRequest, answers.message_answer),
        post("messages", page_requests.CompositionRequest, answers.messages_answer),
        post("payload", page_requests.CompositionRequest, answers.payload_answer),
        post("events", page_requests.EventsRequest, answers.events_answer),
        post("why", page_requests.CompositionRequest, answers.why_answer),
        post("ask", page_requests.CompositionRequest, play_answers.ask_answer),
        post("curl", page_requests.CompositionRequest, play_answers.curl_answer),
        post("case", page_requests.TestCase, play_answers.case_answer),
        post("recall", page_requests.RecallNow, answers.recall_answer),
        post("start", page_requests.Start, answers.start_answer),
        post("decide", page_requests.Decide, answers.decide_answer),
        Route(f"{PREFIX}/{{name}}", file),
    ]


async def _to_page(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{PREFIX}/", headers=_HEADERS)


def _parameter(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if not value:
        raise HTTPException(400, f"{name}: missing in the query, such as ?{name}=...")
    return value


def _name_and_start(request: Request) -> tuple[str, int]:
    return _parameter(request, "name"), _turn("start", _parameter(request, "start"))


def _name_and_turn(request: Request) -> tuple[str, int | None]:
    name, turn = _parameter(request, "name"), request.query_params.get("turn")
    if turn is None:
        return name, None
    return name, _turn("turn", turn)


def _turn(name: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise HTTPException(400, f"{name}: expected the number of a turn, from 0, got {text[:40]!r}")
    return int(text)


async def _read(request: Request, body: type[Body]) -> Body:
    """Return the body of a JSON request.

    Raises:
        HTTPException: The request has another type of content, is too long or too slow, or is not JSON.
        ContextError: The JSON does not match the body. The error lists all problems.
    """
    # For this type, the browser asks this server before a page of another site can send a request.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"content-type: expected application/json, got {kind[:80]!r}")
    # The bytes are counted while they arrive, because the header with the length can be missing or wrong.
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > _MAX_BODY:
                    raise HTTPException(413, f"the request has more than {_MAX_BODY:,} bytes: send less")
    except TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {_BODY_SECONDS:g} seconds") from None
    try:
        values = request_json(bytes(data))
    except ValueError as error:
        raise HTTPException(400, f"the request is not JSON: {error}"[:_MAX_MESSAGE]) from error
    return _validated(body, values)


def _validated(body: type[Body], values: Any) -> Body:
    try:
        return body.model_validate(values)
    except ValidationError as error:
        problems = [(each.place, each.message(json_value)) for each in invalid_values(error, values, body, JSON_WORDS)]
        raise ContextError("the request", problems) from None


def _json(data: object, status: int = 200) -> Response:
    """Return a response with JSON in ASCII, so that lone surrogates and line separators arrive unchanged."""
    try:
        text = json.dumps(data, allow_nan=False, default=_plain, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(data), default=_plain, separators=(",", ":"))
    return Response(text, status, {**_HEADERS, "cache-control": "no-store"}, "application/json")


def _plain(value: object) -> object:
    """Return a value that JSON cannot represent as an object, a list or text."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    if isinstance(value, bytes | bytearray):
        return f"({len(value):,} bytes)"
    return str(value)[:_MAX_MESSAGE]


def _finite(data: object) -> object:
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data


def stopped() -> Response:
    """Return the answer to a request that was cancelled because the server stopped."""
    return _json({"error": {"kind": "Stopped", "message": STOPPED, "problems": [], "omitted": 0}}, 503)


def _error_response(error: Exception) -> Response:
    """Return the response for an error, with its problems and without files and addresses of the machine."""
    problems: list[tuple[str, str]] = []
    if isinstance(error, HTTPException):
        status, message = error.status_code, str(error.detail)
    elif isinstance(error, answers.Missing):
        status, message = 404, str(error.args[0])
    elif isinstance(error, _SHOWN_ERRORS) and not isinstance(error, DatabaseUnavailable):
        status, message = 422, str(error)
        if isinstance(error, KwargsError):
            problems = [(f"kwargs.{name}", problem) for name, (problem, _) in error.problems.items()]
        elif isinstance(error, ContextError):
            problems = list(error.problems)
    else:
        _log.exception("inspector: a request failed", exc_info=error)
        status, reason = 500, "an internal error"
        if isinstance(error, _UNAVAILABLE):
            status, reason = 503, "a database, a store or a model is unavailable"
        message = f"the inspector cannot answer: {reason}; the log of the server has the cause"
    rows = [{"where": where[:200], "what": problem[:500]} for where, problem in problems[:_MAX_PROBLEMS]]
    body = {"kind": type(error).__name__, "message": message[:_MAX_MESSAGE], "problems": rows}
    # Headers such as `WWW-Authenticate`, for a request without a token.
    headers = getattr(error, "headers", None) or {}
    response = _json({"error": body | {"omitted": max(0, len(problems) - _MAX_PROBLEMS)}}, status)
    response.headers.update(headers)
    return response
