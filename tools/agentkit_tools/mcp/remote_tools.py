"""Tools from the definitions of an MCP server: checked, with a policy from its hints; the others are reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from agentkit_tools.calling.tool_policy import PolicyOptions
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import MCPServerError, MCPServerLost, ToolDefinitionError
from agentkit_tools.mcp.connection import Connection
from agentkit_tools.mcp.content import to_result
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool as Definition
    from mcp_types import ToolAnnotations

__all__ = ["IDEMPOTENCY_KEY", "list_all", "make_tools"]

IDEMPOTENCY_KEY = "agentkit/idempotency-key"
"""Under this name a call carries its idempotency key in `_meta`."""

_TIMEOUT = 60.0
_MAX_PAGES = 200
_MAX_LISTED = 20_000
_MAX_DESCRIPTION = 20_000
_MAX_SCHEMA = 500_000


async def list_all(client: Client, kind: Literal["tools", "resources", "prompts"]) -> list[Any]:
    """Return the tools, resources or prompts of a server, page by page; nothing when it has none.

    Raises:
        MCPServerError: The list does not end.
    """
    found: list[Any] = []
    if getattr(client.server_capabilities, kind) is None:
        return found
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await getattr(client, f"list_{kind}")(cursor=cursor)
        found += getattr(page, kind)
        if page.next_cursor is None and len(found) <= _MAX_LISTED:
            return found
        if page.next_cursor == cursor or len(found) > _MAX_LISTED:
            break
        cursor = page.next_cursor
    raise MCPServerError(
        f"the server's list of {kind} does not end: {len(found):,} so far; {_MAX_LISTED:,} on {_MAX_PAGES} pages are"
        " allowed"
    )


def make_tools(
    definitions: Sequence[Definition], connection: Connection, policy: PolicyOptions
) -> tuple[dict[str, Tool], tuple[ToolDefinitionError, ...]]:
    """Return the tools by name, and what is wrong with those that cannot be offered.

    `policy` goes before what follows from the hints of the server.
    """
    tools: dict[str, Tool] = {}
    problems: list[ToolDefinitionError] = []
    for definition in definitions:
        try:
            made = _tool(definition, connection, policy)
        except ToolDefinitionError as error:
            problems.append(error)
            continue
        if tools.setdefault(made.name, made) is not made:
            problems.append(
                ToolDefinitionError(f"tool {definition.name}: the server has another of this name, which is used")
            )
    return tools, tuple(problems)


def _tool(definition: Definition, connection: Connection, policy: PolicyOptions) -> Tool:
    name, schema = definition.name, definition.input_schema
    description = definition.description or definition.title or ""
    if not name.strip():
        raise ToolDefinitionError("a tool of the server has no name")
    if len(description) > _MAX_DESCRIPTION:
        raise ToolDefinitionError(
            f"tool {name[:100]}: its description has {len(description):,} characters, {_MAX_DESCRIPTION:,} are allowed"
        )
    size = len(json.dumps(schema))
    if size > _MAX_SCHEMA:
        raise ToolDefinitionError(f"tool {name}: its JSON Schema has {size:,} characters, {_MAX_SCHEMA:,} are allowed")
    options: PolicyOptions = {**_policy_of(definition.annotations), **policy}
    return Tool.from_json_schema(name, description, schema, _caller(name, connection), trust="untrusted", **options)


def _policy_of(hints: ToolAnnotations | None) -> PolicyOptions:
    """Return what the hints of a server suggest. By the protocol a tool without hints may have side effects.

    Nobody can check them: apart from running in parallel and a second try, they only ever make a policy stricter.
    """
    options: PolicyOptions = {"timeout": _TIMEOUT}
    if hints is not None and (hints.read_only_hint or hints.idempotent_hint):
        options |= {"retries": 1, "retry_on": (MCPServerLost,), "backoff": 0.1}
    if hints is None or not hints.read_only_hint:
        options["sequential"] = True
        if hints is not None and hints.destructive_hint:
            options["approval"] = "always"
    return options


def _caller(name: str, connection: Connection) -> Callable[..., Any]:
    async def call(agentkit_context: ToolContext[Any] | None = None, **arguments: Any) -> ToolResult:
        meta: Any = {IDEMPOTENCY_KEY: agentkit_context.idempotency_key} if agentkit_context is not None else None
        answer = await connection.request(lambda client: client.call_tool(name, arguments, meta=meta))
        return to_result(answer, name)

    return call
