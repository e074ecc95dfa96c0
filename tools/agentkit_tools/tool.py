"""`Tool`: a function a model can call, with its description, its validator and its policy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any, Generic, Unpack, cast, overload

from pydantic import ValidationError
from typing_extensions import ParamSpec, TypeVar  # with defaults: a bare `Tool` is a tool of any function

from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_tools.calling.argument_problems import find_problems
from agentkit_tools.calling.callables import (
    Collected,
    Mode,
    as_coroutine,
    collect,
    gather,
    inner_function,
    is_unbound_method,
    mode_of,
    name_of,
    raw,
)
from agentkit_tools.calling.deadline import with_deadline
from agentkit_tools.calling.enforcement import Gates, guarded, needs_approval
from agentkit_tools.calling.threads import DeadlineError, run_in_thread
from agentkit_tools.calling.tool_policy import PolicyOptions, ToolPolicy
from agentkit_tools.calling.tool_result import ToolResult, cut, describe_error, failed_with, shortened, to_content
from agentkit_tools.errors import ArgumentProblem, ToolArgumentError, ToolDefinitionError, ToolFailure
from agentkit_tools.schemas.docstring import read_docstring
from agentkit_tools.schemas.signature import Arguments, add_contexts, context_parameters, read_signature
from agentkit_tools.schemas.tool_names import wire_name
from agentkit_tools.tool_context import ToolContext

__all__ = ["Tool", "tool", "unknown_tool"]

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

_PLAIN = ToolPolicy()


class Tool(Generic[P, R]):
    """A function a model can call. Call it like the function, or through `call` the way an agent does.

    Make one with `@tool`, `Tool.from_function` or `Tool.from_json_schema`. Immutable: `but` returns a changed copy.
    """

    __slots__ = (
        "__weakref__",
        "_bind",
        "_gates",
        "_loose",
        "_mode",
        "_nothing",
        "_validator",
        "function",
        "original_name",
        "policy",
        "spec",
    )

    spec: ToolSpec
    """What the model is told."""
    policy: ToolPolicy
    """How it is run."""
    function: Callable[P, R]
    """What it runs."""
    original_name: str
    """The name its author gave it; `name` is what providers accept of it."""

    def __init__(
        self,
        spec: ToolSpec,
        function: Callable[P, R],
        validator: Callable[[str], Arguments],
        policy: ToolPolicy,
        *,
        bind: Callable[[Arguments, ToolContext[Any]], tuple[tuple[Any, ...], Arguments]] | None,
        mode: Mode,
        nothing: str,
        original_name: str,
    ) -> None:
        self.spec = spec
        self.function = function
        self._validator = validator
        self._bind = bind
        self._mode: Mode = mode
        self._nothing = nothing
        self.original_name = original_name
        self._loose: Mapping[str, Any] | None = None
        self._adopt(policy)

    def _adopt(self, policy: ToolPolicy) -> None:
        self.policy = policy
        self._gates = None if policy.is_plain else Gates()

    @classmethod
    def from_function(
        cls,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> Tool[P, R]:
        """Make a tool from a function, a method or any callable: its parameters, types and docstring say the rest.

        Args:
            function: Sync or async; a generator's items are collected. A parameter annotated `ToolContext` receives
                the context of the call and is not shown to the model.
            name: Name for the model; the name of the function if None.
            description: Text for the model; the prose of the docstring if None.
            **policy: Fields of `ToolPolicy`.

        Raises:
            ToolDefinitionError: The signature cannot be described to a model, or the policy makes no sense.
        """
        inner = inner_function(function)
        name = name or name_of(function)
        text = read_docstring(inner.__doc__ if hasattr(inner, "__code__") else function.__doc__)
        takes = read_signature(raw(function), text.parameters, tool=name, skip_first=is_unbound_method(function))
        returns = getattr(inner, "__annotations__", {}).get("return")
        return cls(
            ToolSpec(wire_name(name), text.text if description is None else description, takes.parameters),
            function,
            takes.validator.validate_json,
            _PLAIN.but(**policy),
            bind=takes.bind if takes.needs_binding else None,
            mode=mode_of(inner),
            nothing="done" if returns in (None, "None") else "null",
            original_name=name,
        )

    @classmethod
    def from_json_schema(
        cls,
        name: str,
        description: str,
        parameters: Mapping[str, Any] | None,
        function: Callable[P, R],
        **policy: Unpack[PolicyOptions],
    ) -> Tool[P, R]:
        """Make a tool whose parameters are described elsewhere: by a server, in a file, in another framework.

        `function` receives the arguments by keyword, exactly as the model wrote them. Foreign type names (`dict`,
        `float`, `HashMap`) are understood; see `validator_for` for what a schema may say that is not checked.

        Args:
            name: Any text. What a provider would refuse is replaced, see `wire_name`; `original_name` keeps it.
            description: Text for the model.
            parameters: JSON Schema of an object; None for a tool without parameters.
            function: Sync or async; a parameter annotated `ToolContext` receives the context of the call.
            **policy: Fields of `ToolPolicy`.

        Raises:
            ToolDefinitionError: The schema is none, describes something else than an object, or is nested too deeply.
        """
        from agentkit_tools.schemas.json_schema import LateValidator  # cost of importing this package
        from agentkit_tools.schemas.lenient_schema import (  # imported by those who need it: it is half the
            SchemaError,
            normalise,
        )

        try:
            schema = normalise({"type": "object", "properties": {}} if parameters is None else parameters)
            if schema.get("type", "object") != "object":
                raise SchemaError(f"the parameters of a tool are an object, not {schema['type']}")
            spec = ToolSpec(wire_name(name), description, {"type": "object", **schema})
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ToolDefinitionError(
                f"tool {name}: its JSON Schema cannot be used; {describe_error(error)}"
            ) from error
        inner = inner_function(function)
        contexts = context_parameters(raw(function), tool=name, taken=schema.get("properties", ()))
        return cls(
            spec,
            function,
            LateValidator(spec.parameters),
            _PLAIN.but(**policy),
            bind=partial(add_contexts, contexts) if contexts else None,
            mode=mode_of(inner),
            nothing="null",
            original_name=name,
        )

    def but(
        self, *, name: str | None = None, description: str | None = None, **policy: Unpack[PolicyOptions]
    ) -> Tool[P, R]:
        """Return the tool under another name, with another description or another policy."""
        other = self._copy()
        if name is not None or description is not None:
            spec = self.spec
            text = spec.description if description is None else description
            other.original_name = name or self.original_name
            other.spec = ToolSpec(wire_name(name) if name else spec.name, text, spec.parameters, strict=spec.strict)
        if policy:
            other._adopt(self.policy.but(**policy))
        return other

    def _copy(self) -> Tool[P, R]:
        other = self.__class__.__new__(self.__class__)
        other._take(self)
        return other

    def _take(self, other: Tool) -> None:
        for slot in Tool.__slots__:
            if slot != "__weakref__":
                setattr(self, slot, getattr(other, slot))

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return self.spec.name

    @property
    def description(self) -> str:
        """What the model is told it does."""
        return self.spec.description

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no validation, no policy."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R]:
        """Return the tool bound to `instance`, when it was made from a method in a class body."""
        function: Any = self.function
        bound = function.__get__(instance, owner) if hasattr(function, "__get__") else function
        if bound is function:
            return self
        other = cast(Tool[..., R], self._copy())
        other.function = bound
        return other

    def strict(self) -> Tool[P, R]:
        """Return the tool with a schema in OpenAI's strict subset, which keeps a model from writing anything else.

        Raises:
            ToolDefinitionError: The parameters cannot be said in that subset; every place at fault is named.
        """
        from agentkit_tools.schemas.strict import strict_parameters

        if self.spec.strict:
            return self
        other = self._copy()
        parameters = strict_parameters(self.spec.parameters, tool=self.name)
        other.spec = ToolSpec(self.spec.name, self.spec.description, parameters, strict=True)
        other._loose = self.spec.parameters
        return other

    def validate(self, arguments: str) -> Arguments:
        """Return the arguments of a call, validated from its JSON text.

        Raises:
            ToolArgumentError: They cannot be used; the message names every problem.
        """
        return self._read(arguments or "{}")[0]

    def _read(self, text: str) -> tuple[Arguments, str]:
        """Return validated arguments and the text they come from, which is mended where that is wanted."""
        found = self._tried(text)
        if not isinstance(found, BaseException):
            return found, text
        for meant in self._readings(text):
            if not isinstance(arguments := self._tried(meant), BaseException):
                return arguments, meant
        if isinstance(found, ValidationError):
            problems = find_problems(found, text, self._loose or self.spec.parameters)
        else:
            problems = [ArgumentProblem("", f"cannot be read ({describe_error(found)})")]
        raise ToolArgumentError(self.name, problems) from None

    def _tried(self, text: str) -> Arguments | BaseException:
        try:
            return self._validator(text)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a validator of the user's own may raise anything
            return error

    def _readings(self, text: str) -> Iterator[str]:
        """What the model may have meant by arguments that are not valid."""
        if self._loose is None and not self.policy.repair:
            return
        from agentkit_tools.calling.argument_repair import mended, without_nulls

        parameters = self._loose or self.spec.parameters
        if self._loose is not None and (bare := without_nulls(text, parameters)) is not None:
            yield bare
        if self.policy.repair and (whole := mended(text, parameters)) is not None:
            yield whole
            if (bare := without_nulls(whole, parameters)) is not None:
                yield bare

    async def call(self, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Answer a model's call. Whatever happens, it ends in a result the model can read.

        Raises:
            asyncio.CancelledError: The task that awaits the call was cancelled.
            KeyboardInterrupt: The user interrupted the process.
        """
        text = call.arguments or "{}"
        try:
            arguments = self._validator(text)
        except KeyboardInterrupt:
            raise
        except BaseException:
            try:
                arguments, text = self._read(text)
            except ToolArgumentError as error:
                return ToolResult(call.id, call.name, str(error), "error", error=error)
        if self._gates is None:
            return await self._attempt(call, arguments, context)
        return await guarded(
            self.policy, self._gates, call, context, lambda: self._read(text)[0], partial(self._attempt, call)
        )

    async def needs_approval(self, call: ToolCall, context: ToolContext[Any]) -> bool:
        """Return whether a person must agree to `call` first; a call whose arguments are wrong needs no approval.

        When someone agreed, set `approved` in the context of the call: without it `call` answers "denied".
        """
        if self.policy.approval == "never" or context.approved:
            return False
        try:
            return await needs_approval(self.policy, self.validate(call.arguments), context)
        except ToolArgumentError:
            return False
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException:
            return True  # the predicate failed: better to ask

    async def _attempt(self, call: ToolCall, arguments: Arguments, context: ToolContext[Any]) -> ToolResult:
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        bind, timeout = self._bind, self.policy.timeout
        function: Any = self.function
        try:
            args, kwargs = bind(arguments, context) if bind is not None else ((), arguments)
            if self._mode == "async":
                work = function(*args, **kwargs)
                value = await (work if timeout is None else with_deadline(as_coroutine(work), timeout))
            elif self._mode == "async_items":
                work = collect(function(*args, **kwargs), self.policy.max_result_chars)
                value = await (work if timeout is None else with_deadline(work, timeout))
            else:
                run = partial(function, *args, **kwargs)
                if self._mode == "sync_items":
                    run = partial(gather, run, self.policy.max_result_chars)
                found, error = await run_in_thread(partial(self._run, call, run), timeout)
                if error is not None:
                    return self._failed(call, error)
                if isinstance(found, ToolResult):
                    return found
                work = as_coroutine(found)
                value = await (work if timeout is None else with_deadline(work, timeout))
        except asyncio.CancelledError as error:
            if task is not None and task.cancelling() > cancelled_before:
                raise
            return self._failed(call, error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit ends the tool, not the agent
            return self._failed(call, error)
        if task is not None and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError  # the tool swallowed it; the one who cancelled still means it
        return self._finish(call, value)

    def _run(self, call: ToolCall, run: Callable[[], Any]) -> ToolResult | Awaitable[Any]:
        """Run a sync function and make its result, which may take long too, in its thread and its time."""
        value = run()
        return value if isawaitable(value) else self._finish(call, value)

    def _failed(self, call: ToolCall, error: BaseException) -> ToolResult:
        if isinstance(error, DeadlineError):
            text = f"{self.name} did not end within {self.policy.timeout:g} seconds. It may still have had an effect."
            return ToolResult(call.id, call.name, text, "timeout", error=TimeoutError(text))
        if isinstance(error, asyncio.CancelledError):
            return ToolResult(call.id, call.name, f"{self.name} was cancelled.", "cancelled", error=error)
        if isinstance(error, ToolFailure):
            return shortened(failed_with(call, error), self.policy.max_result_chars)
        return ToolResult(call.id, call.name, f"{self.name} failed: {describe_error(error)}", "error", error=error)

    def _finish(self, call: ToolCall, value: Any) -> ToolResult:
        limit = self.policy.max_result_chars
        if type(value) is str and value.isascii() and (limit is None or len(value) <= limit):  # most results
            return ToolResult(call.id, call.name, value, "success", value)
        try:
            if isinstance(value, ToolResult):
                return shortened(value.answering(call).checked(), limit)
            if isinstance(value, BaseException):
                return self._failed(call, value)
            if isinstance(value, Iterator):
                value = gather(partial(iter, value), limit, join=False)
            value, ended = value if isinstance(value, Collected) else (value, True)
            content = to_content(value, nothing=self._nothing)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # code of the tool's own runs here too
            text = f"{self.name} ran, but its result ({type(value).__name__}) cannot be shown: {describe_error(error)}"
            return ToolResult(call.id, call.name, text, "error", value, error)
        if limit is not None and (shorter := cut(content, limit, more=not ended)) is not None:
            return ToolResult(call.id, call.name, shorter[0], "too_large", value, None, shorter[1])
        return ToolResult(call.id, call.name, content, "success", value)

    def __repr__(self) -> str:
        return f"Tool({', '.join([self.name, *self.spec.parameters.get('properties', ())])})"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **policy: Unpack[PolicyOptions]
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: `@tool`, or `@tool(name=..., timeout=...)`. See `Tool.from_function`."""
    if function is None:
        return partial(Tool.from_function, **options)
    return Tool.from_function(function, **options)


def unknown_tool(call: ToolCall, names: Iterable[str]) -> ToolResult:
    """Return the answer to a call of a tool that does not exist."""
    from difflib import get_close_matches

    known = list(names)
    near = get_close_matches(call.name, known, n=3, cutoff=0.4)
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    elif known:
        hint = f"The tools are: {', '.join(known[:30])}{', ...' if len(known) > 30 else ''}."
    else:
        hint = "There are no tools."
    name = call.name.encode("utf-8", "replace").decode()[:100]
    return ToolResult(call.id, call.name, f"There is no tool named {name!r}. {hint}", "error")
