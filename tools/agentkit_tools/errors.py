"""Everything that can go wrong while a tool is declared, or when a model calls one."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.errors import Picklable
from agentkit_prompts.limits import MAX_LISTED, MAX_MESSAGE_CHARS

__all__ = [
    "ArgumentProblem",
    "MCPServerError",
    "MCPServerLost",
    "ToolArgumentError",
    "ToolDefinitionError",
    "ToolDescriptionWarning",
    "ToolError",
    "ToolFailure",
    "describe_error",
    "ends_run",
]


class ToolError(Picklable):
    """Base of every error of the tools layer. A tool may raise it: its message goes to the model."""


class ToolDefinitionError(ToolError):
    """A tool that cannot be offered to a model: its signature, schema, name or policy is at fault.

    Attributes:
        tool: Name of the tool; "" if the error is not about one tool.
        names: Names at fault: of parameters, options, methods, or of tools with the same name.
    """

    def __init__(self, message: str, *, tool: str = "", names: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.tool = tool
        self._names = tuple(names)

    @property
    def names(self) -> tuple[str, ...]:
        if self._names:
            return self._names
        # `check_types` lists problems only; the place of one can be inside of an option, such as `hosts[0]`.
        return tuple(dict.fromkeys([problem.place.partition("[")[0] for problem in self.problems]))


class ToolDescriptionWarning(UserWarning):
    """A tool without a description or with parameters without types: a model has to guess how to call it."""


class ToolFailure(ToolError):
    """A failure that is data: a tool raises or returns it, the model reads it as JSON, `ToolResult.error` carries it.

    Attributes:
        message: What went wrong, and what the model can do about it.
        data: Anything a tool may return as data, such as a code or the fields at fault, or None.
    """

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    @property
    def payload(self) -> dict[str, Any]:
        """What the model reads: `{"error": message}`, with `data` when there is some."""
        if self.data is None:
            return {"error": self.message}
        return {"error": self.message, "data": self.data}


class MCPServerError(ToolError):
    """An MCP server refused a request, or answered with something the protocol or its own schemas do not allow.

    Attributes:
        server: Name of the server; "" if unknown.
        name: Name of the tool or prompt, or address of the resource; "" if the error is about the whole session.
        code: Code of JSON-RPC, if the server refused the request.
        limit: Limit that the server exceeded: seconds, characters or entries.
        problems: Invalid arguments of a prompt.
    """

    def __init__(
        self,
        message: str,
        *,
        server: str = "",
        name: str = "",
        code: int | None = None,
        limit: float | None = None,
        problems: Iterable[ArgumentProblem] = (),
    ) -> None:
        super().__init__(message)
        self.server = server
        self.name = name
        self.code = code
        self.limit = limit
        self.problems = tuple(problems)


class MCPServerLost(MCPServerError):
    """An MCP server cannot be reached, or ended before it answered. The next call connects again."""


class ArgumentProblem(NamedTuple):
    """One thing that is wrong with the arguments of a call.

    `path` is where, such as `person.others[2].zip` (empty: the arguments as a whole), `expected` what the tool
    wanted there, `got` a short form of what the model sent ("" when it sent nothing).
    """

    path: str
    expected: str
    got: str = ""

    def __str__(self) -> str:
        text = f"{self.path or 'arguments'}: {self.expected}"
        if self.got:
            text += f", got {self.got}"
        return text


class ToolArgumentError(ToolError, ValueError):
    """Arguments that a tool cannot be called with. The message names every problem and is written for the model.

    Attributes:
        tool: Name of the tool.
        problems: Every problem that was found.
    """

    def __init__(self, tool: str, problems: Sequence[ArgumentProblem]) -> None:
        self.tool = tool
        self.problems = tuple(problems)
        shown = [f"- {problem}" for problem in self.problems[:MAX_LISTED]]
        if len(self.problems) > MAX_LISTED:
            shown.append(f"- and {len(self.problems) - MAX_LISTED} more")
        count = f"{len(self.problems)} problems"
        if len(self.problems) == 1:
            count = "a problem"
        lines = "\n".join(shown)
        opening = f"{tool} was not called: {count} with the arguments."
        super().__init__(f"{opening}\n{lines}\nCorrect this and call it again.")


def describe_error(error: BaseException) -> str:
    """Return an exception as one short text: its type and message, never a traceback."""
    name = type(error).__name__
    try:
        text = str(error).strip()
        if isinstance(error, BaseExceptionGroup):
            # The first five: a group can contain thousands of exceptions.
            text = "; ".join([text, *(describe_error(inner) for inner in error.exceptions[:5])])
    except BaseException as problem:
        if ends_run(problem):
            raise
        text = ""
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[:MAX_MESSAGE_CHARS] + "..."
    if not text:
        return name
    return clean(f"{name}: {text}")


def ends_run(error: BaseException, *, in_thread: bool = False) -> bool:
    """Return whether an exception goes through every tool to whoever started the run, and is never a result.

    That is what does not derive from `Exception`: `KeyboardInterrupt`, `SystemExit`, and what engines control their
    flow with. Not a cancellation, which may be the tool's own or the run's, nor a panic of code in Rust. Raised in a
    thread, `SystemExit` and `KeyboardInterrupt` end what runs in it and no more, as in any thread of Python.
    """
    # A panic of Rust code derives from BaseException, but concerns the tool only.
    if isinstance(error, Exception | CancelledError) or type(error).__module__ == "pyo3_runtime":
        return False
    return not (in_thread and isinstance(error, KeyboardInterrupt | SystemExit))
