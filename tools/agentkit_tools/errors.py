"""Errors of tools: of their definition, of calls by a model, and of MCP servers."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from agentkit_prompts.caller_warnings import waiting_thread
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.errors import Picklable, start_of
from agentkit_prompts.limits import MAX_LISTED, MAX_MESSAGE_CHARS
from agentkit_prompts.system.tracebacks import without_own_frames

_MAX_TRACEBACK = 20_000
"""Maximum characters of a traceback."""


class RunInterrupt(BaseException):
    """Base of the exceptions with which the runtime ends a run from inside of a tool, such as of an agent as a tool."""


class ToolError(Picklable):
    """Base of all errors of this package. A tool can raise it: the model receives the message."""


class ToolDefinitionError(ToolError):
    """A tool has an invalid signature, schema, name or policy.

    Attributes:
        tool: Name of the tool; "" if the error is not about a single tool.
        names: Invalid names: of parameters, options, methods, or of tools with the same name.
    """

    def __init__(self, message: str, *, tool: str = "", names: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.tool = tool
        self._names = tuple(names)

    @property
    def names(self) -> tuple[str, ...]:
        if self._names:
            return self._names
        # `check_types` lists problems only; the place of a problem can be inside of an option, such as `hosts[0]`.
        return tuple(dict.fromkeys([problem.place.partition("[")[0] for problem in self.problems]))


class ToolDescriptionWarning(UserWarning):
    """A tool has no description, or parameters without types: a model must guess how to call it."""


class ToolFailure(ToolError):
    """Failure with data. A tool raises or returns it, the model receives it as JSON, and it is `ToolResult.error`.

    Attributes:
        message: Problem, and advice for the model.
        data: JSON data, such as a code or the invalid fields, or None.
    """

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    @property
    def payload(self) -> dict[str, Any]:
        """Content for the model: `{"error": message}`, and `data` if it is not None."""
        if self.data is None:
            return {"error": self.message}
        return {"error": self.message, "data": self.data}


class MCPServerError(ToolError):
    """An MCP server refused a request, or sent a response that the protocol or the server's schema does not allow.

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
    """An MCP server cannot be reached, or exited before its response. The next call connects again."""


LoginProblem: TypeAlias = Literal["required", "refused", "scope", "denied", "state", "timeout", "cancelled", "failed"]
_LOGIN_PROBLEMS: dict[LoginProblem, str] = {
    "required": "the server requires a login: run `agentkit mcp login {address}`, or pass headers= with its key",
    "refused": "the server refuses the stored login{detail}: run `agentkit mcp login {address}`",
    "scope": "the stored login lacks rights{detail}: run `agentkit mcp login {address} --scope NAMES` with all rights",
    "denied": "the login was denied{detail}; nothing was stored",
    "state": "the answer of the browser belongs to another login; nothing was stored. Log in again",
    "timeout": "the login was not finished within {detail}; nothing was stored. Log in again",
    "cancelled": "the login was cancelled; nothing was stored",
    "failed": "the login failed{detail}; nothing was stored",
}


class MCPLoginError(MCPServerError):
    """An MCP server requires a login, refuses the stored login, or a login failed.

    Attributes:
        reason: `required`: no login is stored; `refused`: the stored tokens are refused and cannot be refreshed;
            `scope`: the tokens lack rights. Of a login: `denied`, `state` (the answer belongs to another login),
            `timeout`, `cancelled` or `failed`.
    """

    def __init__(self, message: str, *, reason: LoginProblem, server: str = "") -> None:
        super().__init__(message, server=server)
        self.reason: LoginProblem = reason

    @classmethod
    def of(cls, address: str, reason: LoginProblem, detail: str = "") -> MCPLoginError:
        """Return the error for a reason. `detail`: text of a server, a time limit or missing rights."""
        detail = clean(detail)[:MAX_MESSAGE_CHARS]
        if detail and reason != "timeout":
            detail = f" ({detail})"
        text = _LOGIN_PROBLEMS[reason].format(address=address, detail=detail)
        return cls(f"MCP server {address}: {text}", reason=reason, server=address)


class ArgumentProblem(NamedTuple):
    """Problem of the arguments of a call.

    Attributes:
        path: Path of the argument, such as `person.others[2].zip`; empty for the arguments as a whole.
        expected: Requirement of the tool.
        got: Short form of the value from the model; "" if the value is missing.
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
    """The arguments of a call are invalid. The message lists the problems for the model.

    Attributes:
        tool: Name of the tool.
        problems: All problems.
    """

    def __init__(self, tool: str, problems: Sequence[ArgumentProblem]) -> None:
        self.tool = tool
        self.problems = tuple(problems)
        lines = [f"- {problem}" for problem in self.problems[:MAX_LISTED]]
        if len(self.problems) > MAX_LISTED:
            lines.append(f"- and {len(self.problems) - MAX_LISTED} more")
        count = f"{len(self.problems)} problems"
        if len(self.problems) == 1:
            count = "a problem"
        listing = "\n".join(lines)
        opening = f"{tool} was not called: {count} with the arguments."
        super().__init__(f"{opening}\n{listing}\nCorrect this and call it again.")


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an exception as one short text, without traceback."""
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
    if not text:
        return name
    return clean(f"{name}: {start_of(text, MAX_MESSAGE_CHARS)}")


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an exception of a tool, with the frames of user code and the last frame; at most its
    end.
    """
    trace = without_own_frames(error.__traceback__)
    # Log handlers and databases cannot encode lone surrogates.
    text = clean("".join(traceback.format_exception(type(error), error, trace)))
    if len(text) > _MAX_TRACEBACK:
        text = "..." + text[-_MAX_TRACEBACK:]
    return text


_READ_OF_ERRORS = ("__class__", "__traceback__", "__cause__", "__context__", "__suppress_context__")


def readable_error(error: BaseException) -> BaseException:
    """Return an exception; a `ToolError` instead if the class of the exception raises when it is read."""
    try:
        # `isinstance` and `logging` read these attributes, which a property or a metaclass can replace.
        for name in _READ_OF_ERRORS:
            getattr(error, name)
        if isinstance(type(error).__name__, str):
            return error
    except BaseException as problem:
        if type(problem) in (KeyboardInterrupt, SystemExit) and _is_for_main_thread():
            raise
    name = type.__getattribute__(type(error), "__name__")
    return ToolError(f"{name}, an exception whose attributes cannot be read")


def ends_run(error: BaseException, *, in_thread: bool = False) -> bool:
    """True if an exception of a tool is raised to the caller of the run instead of becoming a result.

    These are `RunInterrupt`, and `KeyboardInterrupt` and `SystemExit` of a run for which the main thread waits. Any
    other exception concerns the tool only, also if it does not derive from `Exception`, such as a panic of Rust code.

    Args:
        error: The exception.
        in_thread: True if a thread of a tool raised the exception: there, `SystemExit` ends only the call.
    """
    if isinstance(error, Exception):
        return False
    if isinstance(error, BaseExceptionGroup):
        return any(ends_run(inner, in_thread=in_thread) for inner in error.exceptions)
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return not in_thread and _is_for_main_thread()
    return isinstance(error, RunInterrupt)


def _is_for_main_thread() -> bool:
    """True if the main thread executes the current code, or waits for it."""
    thread = waiting_thread.get() or threading.get_ident()
    return thread == threading.main_thread().ident
