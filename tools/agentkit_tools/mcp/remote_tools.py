"""Tools from the definitions of an MCP server, with a policy from its hints. Invalid definitions are reported."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

from agentkit_prompts.context.parts import Text
from agentkit_prompts.errors import start_of
from agentkit_prompts.invalid_values import place_of
from agentkit_prompts.limits import (
    MAX_ENTRIES,
    MAX_FOREIGN_NAME_CHARS,
    MAX_LISTED,
    MAX_MESSAGE_CHARS,
    MAX_NAME_CHARS,
)
from agentkit_prompts.schemas.json_validator import JsonValidator
from agentkit_prompts.schemas.schema_problems import InvalidSchemaError, SchemaProblem
from agentkit_tools.calling.tool_policy import PolicyOptions
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.errors import MCPServerError, MCPServerLost, ToolDefinitionError, describe_error
from agentkit_tools.form import FORM
from agentkit_tools.mcp.connection import Connection
from agentkit_tools.mcp.content import to_parts, to_result
from agentkit_tools.mcp.listed_tools import DROPPED, OUTPUT, PROBLEM
from agentkit_tools.mcp.server_requests import CallingRun
from agentkit_tools.schemas.callables import wire_name
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, ListToolsResult, ToolAnnotations
    from mcp_types import Tool as Definition

IDEMPOTENCY_KEY = "agentkit/idempotency-key"
"""Key in the `_meta` of a call for its idempotency key."""

_TIMEOUT = 60.0
_MAX_PAGES = 200
_MAX_DESCRIPTION = 20_000
_MAX_SCHEMA = 500_000


async def list_all(client: Client, kind: Literal["tools", "resources", "prompts"]) -> list[Any]:
    """Return the tools, resources or prompts on all pages of a server; an empty list if the server does not offer them.

    Raises:
        MCPServerError: The list is too long.
    """
    entries: list[Any] = []
    if getattr(client.server_capabilities, kind) is None:
        return entries
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await getattr(client, f"list_{kind}")(cursor=cursor)
        entries += getattr(page, kind)
        if kind == "tools":
            entries += _dropped_tools(page)
        if isinstance(omitted := (page.meta or {}).get(PROBLEM), int):
            raise _too_long(kind, len(entries) + omitted)
        if page.next_cursor is None and len(entries) <= MAX_ENTRIES:
            return entries
        # A cursor that repeats leads to the same page forever.
        if page.next_cursor == cursor or len(entries) > MAX_ENTRIES:
            break
        cursor = page.next_cursor
    raise _too_long(kind, len(entries))


def _dropped_tools(page: ListToolsResult) -> list[Definition]:
    """Return the tools that the SDK dropped from a page, as definitions with a problem."""
    from mcp_types import Tool as Definition

    problems = (page.meta or {}).get(DROPPED) or {}
    names = {tool.name for tool in page.tools}
    return [
        Definition(name=name, input_schema={"type": "object"}, _meta={PROBLEM: f"inputSchema: {problem}"})
        for name, problem in problems.items()
        if name not in names
    ]


def _too_long(kind: str, count: int) -> MCPServerError:
    text = (
        f"the server's list of {kind} does not end: {count:,} so far; {MAX_ENTRIES:,} on {_MAX_PAGES} pages are allowed"
    )
    return MCPServerError(text, limit=MAX_ENTRIES)


def make_tools(
    definitions: Sequence[Definition], connection: Connection, policy: PolicyOptions
) -> tuple[dict[str, Tool], tuple[ToolDefinitionError, ...]]:
    """Return the tools by name, and the errors of invalid definitions.

    `policy` has precedence over the hints of the server.

    Raises:
        MCPServerError: Reading the definitions exceeds the time limit of a request.
    """
    end = monotonic() + connection.seconds
    tools: dict[str, Tool] = {}
    problems: list[ToolDefinitionError] = []
    for number, definition in enumerate(definitions):
        # Reading a schema can take long, and a server can list many.
        if monotonic() > end:
            raise MCPServerError(
                f"MCP server {connection.name} lists {len(definitions):,} tools, of which {number:,} could be read"
                f" within {connection.seconds:g} seconds",
                server=connection.name,
                limit=connection.seconds,
            )
        try:
            output = _Output((definition.meta or {}).get(OUTPUT, definition.output_schema))
            tool = _tool(definition, output, connection, policy)
        except ToolDefinitionError as error:
            problems.append(error)
            continue
        if tools.setdefault(tool.name, tool) is not tool:
            text = f"tool {definition.name}: the server lists several tools of this name; the first is used"
            problems.append(ToolDefinitionError(text, tool=definition.name))
        elif problem := output.read():
            text = f"tool {definition.name}: its results are not checked, because its {problem}"
            problems.append(ToolDefinitionError(text, tool=definition.name))
    return tools, tuple(problems)


def _tool(definition: Definition, output: _Output, connection: Connection, policy: PolicyOptions) -> Tool:
    name, schema = definition.name, definition.input_schema
    description = definition.description or definition.title or ""
    problem = _problem_of(definition, description)
    if problem:
        label = start_of(name, MAX_NAME_CHARS)
        raise ToolDefinitionError(f"tool {label or '(without a name)'}: {problem}", tool=label)
    options: PolicyOptions = {**_policy_of(definition.annotations), **policy}
    call = _RemoteTool(name, connection, output, can_repeat=bool(options.get("retries"))).call
    return Tool.from_json_schema(name, description, schema, call, trust="untrusted", **options)


def _problem_of(definition: Definition, description: str) -> str:
    """Return the problem of an invalid definition; "" for a valid definition."""
    name = definition.name
    # Errors and prompts contain the name.
    if len(name) > MAX_FOREIGN_NAME_CHARS:
        return f"its name has {len(name):,} characters, {MAX_FOREIGN_NAME_CHARS:,} are allowed"
    if definition.execution is not None and definition.execution.task_support == "required":
        return "it runs only as a task, which is not supported"
    problem = (definition.meta or {}).get(PROBLEM)
    if isinstance(problem, str):
        part = "JSON Schema" if problem.startswith(("inputSchema", "outputSchema")) else "definition"
        return f"its {part} cannot be used; {problem}"
    if not name.strip():
        return "it has no name"
    # Otherwise a call of the tool could look like a question to the person.
    if wire_name(name) == FORM:
        return "its name is reserved for questions of tools"
    if len(description) > _MAX_DESCRIPTION:
        return f"its description has {len(description):,} characters, {_MAX_DESCRIPTION:,} are allowed"
    return _problem_of_schema(definition.input_schema)


def _problem_of_schema(schema: Any) -> str:
    try:
        size = len(json.dumps(schema))
    except (ValueError, RecursionError) as error:
        return f"its JSON Schema cannot be used; {describe_error(error)}"
    if size > _MAX_SCHEMA:
        return f"its JSON Schema has {size:,} characters, {_MAX_SCHEMA:,} are allowed"
    return ""


def _policy_of(hints: ToolAnnotations | None) -> PolicyOptions:
    """Return the policy for the hints of a server. In the protocol, a tool without hints can have side effects.

    Hints cannot be verified: except for concurrent calls and one retry, they only make a policy stricter.
    """
    options: PolicyOptions = {"timeout": _TIMEOUT}
    if hints is not None and (hints.read_only_hint or hints.idempotent_hint):
        options |= {"retries": 1, "retry_on": (MCPServerLost,), "backoff": 0.1}
    # Without a hint a tool can have side effects.
    if hints is None or not hints.read_only_hint:
        options["sequential"] = True
        if hints is not None and hints.destructive_hint:
            options["approval"] = "always"
    return options


class _RemoteTool:
    """Function of a tool of a server."""

    def __init__(self, name: str, connection: Connection, output: _Output, *, can_repeat: bool) -> None:
        self._can_repeat = can_repeat
        self._name = name
        self._connection = connection
        self._output = output

    # An argument of the server can have the name "self".
    async def call(self, /, agentkit_context: ToolContext[Any] | None = None, **arguments: Any) -> ToolResult:
        """Call the tool of the server."""
        meta: Any = None
        report: ProgressFnT | None = None
        run: CallingRun | None = None
        if agentkit_context is not None:
            meta = {IDEMPOTENCY_KEY: agentkit_context.idempotency_key}
            report = _reporter(agentkit_context)
        if agentkit_context is not None and agentkit_context.run is not None:
            connection = self._connection
            run = CallingRun(agentkit_context, connection.name, connection.sampling, can_repeat=self._can_repeat)
        answer = await self._connection.call(
            lambda client: client.call_tool(self._name, arguments, progress_callback=report, meta=meta), run
        )
        if self._output.is_checked and not answer.is_error:
            problems, error = await run_in_thread(partial(self._output.problems, answer))
            if error is not None:
                raise error
            if problems:
                server = self._connection.name
                text = f"MCP server {server}: tool {self._name} {problems}"
                raise MCPServerError(text, server=server, name=self._name)
        return to_result(answer, self._name)


def _reporter(context: ToolContext[Any]) -> ProgressFnT | None:
    """Return a function that forwards progress from a server to the listeners of the run; None outside of a run."""
    if context.run is None:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        context.progress((message or "")[:MAX_MESSAGE_CHARS], done=progress, total=total)

    return report


def resource_tool(connection: Connection) -> Tool:
    """Return a tool that reads resources, such as the targets of links in results."""

    async def read_resource(uri: Annotated[str, "The address of the resource, copied exactly."]) -> Any:
        parts = to_parts(await connection.call(lambda client: client.read_resource(uri)))
        texts = [part.text for part in parts if isinstance(part, Text)]
        if len(texts) < len(parts):
            return parts
        return "\n".join(texts)

    about = f"Read a resource of {connection.name}, such as the target of a link in a result."
    return Tool(read_resource, description=about, timeout=_TIMEOUT)


class _Output:
    """Validator of the results of a tool. A result is not checked without an output schema, or by an invalid schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    @property
    def is_checked(self) -> bool:
        """True if results are checked."""
        return self._schema is not None

    def read(self) -> str:
        """Return the problem of an invalid schema, which then checks no results; "" for any other schema.

        The validator is not kept: it needs much memory, and a run calls few of the thousands of tools of a server.
        """
        if self._schema is None:
            return ""
        if not (problems := _output_problems(self._schema)):
            return ""
        self._schema = None
        listed = [_schema_problem(*problem) for problem in problems[:MAX_LISTED]]
        return f"output schema is invalid: {'; '.join(listed)}"

    @cached_property
    def _validator(self) -> JsonValidator:
        return JsonValidator(self._schema or {})

    def problems(self, answer: CallToolResult) -> str:
        """Return the problems of a result; "" for a valid result, or a result that takes too long to check."""
        if answer.structured_content is None and "structured_content" not in answer.model_fields_set:
            return "has an output schema but did not return structured content"
        problems = self._validator.problems_of_object(answer.structured_content)
        listed = [_result_problem(problem) for problem in problems if problem.keyword != "limit"]
        if not listed:
            return ""
        text = "; ".join(listed[:MAX_LISTED])
        return f"returned structured content that does not fit its output schema: {text}"


def _output_problems(schema: Any) -> list[tuple[str, str]]:
    """Return places and texts of the problems of a schema."""
    if not isinstance(schema, Mapping):
        return [("", f"expected an object, got {type(schema).__name__}")]
    if problem := _problem_of_schema(schema):
        return [("", problem)]
    try:
        JsonValidator(schema)
    except InvalidSchemaError as error:
        return error.problems
    return []


def _result_problem(problem: SchemaProblem) -> str:
    return f"{place_of(problem.path) or '(value)'}: {problem.expected}"


def _schema_problem(place: str, problem: str) -> str:
    if place:
        return f"outputSchema.{place} {problem}"
    return problem
