"""`Tool`: a function for a model, with its description, validator and policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, Unpack, cast, overload

# The type variables have defaults, so that `Tool` without parameters is a tool of any function.
from typing_extensions import ParamSpec, TypeVar

from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import ToolSpec, Trust
from agentkit_prompts.errors import ContextError, check_types
from agentkit_prompts.hint_calls import CALLS
from agentkit_prompts.hints import hinted, with_option_hints
from agentkit_tools.calling.arguments import ToolArguments, text_of_arguments
from agentkit_tools.calling.deadline import DeadlineError
from agentkit_tools.calling.enforcement import Semaphores, enforced, needs_approval
from agentkit_tools.calling.function_runner import FunctionRunner
from agentkit_tools.calling.tool_policy import PolicyOptions, ToolPolicy
from agentkit_tools.calling.tool_result import ToolResult, unread
from agentkit_tools.errors import (
    ToolArgumentError,
    ToolDefinitionError,
    ToolError,
    ToolFailure,
    describe_error,
)
from agentkit_tools.schemas.callables import raw, wire_name
from agentkit_tools.schemas.deps_type import class_of_other_module, fits, name_of_type
from agentkit_tools.tool_context import ToolContext
from agentkit_tools.tool_forms import ToolForms

if TYPE_CHECKING:
    from agentkit_tools.schemas.argument_reader import Arguments
    from agentkit_tools.schemas.function_schema import Signature

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)
D = TypeVar("D", default=Any, contravariant=True)
P2 = ParamSpec("P2")
R2 = TypeVar("R2")
D2 = TypeVar("D2")

_PLAIN = ToolPolicy()


@hinted
class Tool(ToolForms, Generic[P, R, D]):
    """A function that a model can call. Call a tool like the function, or with `call` as an agent does.

    Parameters, types and the docstring of the function become the schema and the description. `@tool` creates the same
    tool, and `Tool.from_json_schema` a tool with a schema from elsewhere. `Tool[P, R, D]` is a tool of a function with
    parameters `P` that returns `R` and requires deps of type `D`. Tools are immutable: `with_changes` returns a changed
    copy. The docstring and the signature of a decorator take precedence over the decorated function.

    Args:
        function: Sync or async; the items of a generator are collected. A parameter annotated `ToolContext` receives
            the context of the call and is not shown to the model. The tool of a pydantic model or dataclass returns a
            validated instance; unknown fields are refused unless the config of the class allows `extra`.
        name: Name for the model; the name of the function if None.
        description: Text for the model; the prose of the docstring if None.
        **policy: Fields of `ToolPolicy`.

    Raises:
        ToolDefinitionError: The signature cannot be described to a model, or the policy is invalid.
    """

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_runner",
        "_semaphores",
        "deps_types",
        "function",
        "original_name",
        "policy",
        "sees_context",
        "spec",
    )

    spec: ToolSpec
    """Name, description and parameters for the model."""
    policy: ToolPolicy
    """Rules for the calls."""
    function: Callable[P, R]
    """Function of the tool."""
    original_name: str
    """Name from the author; `name` contains only characters that providers accept."""
    sees_context: bool
    """True if the function or the policy reads the context of a call."""
    deps_types: tuple[Any, ...]
    """Types that the function declares with `ToolContext[...]`; `ToolContext.deps` must be of all these types. Empty if
    the function accepts any `deps`, also None. See `deps_problem`."""

    @overload
    def __init__(
        self: Tool[Concatenate[ToolContext[D2], P2], R2, D2],
        function: Callable[Concatenate[ToolContext[D2], P2], R2],
        *,
        name: str | None = None,
        description: str | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Tool[P2, R2, object],
        function: Callable[P2, R2],
        *,
        name: str | None = None,
        description: str | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> None: ...
    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> None:
        # Programs without tools do not import these.
        from agentkit_tools.schemas.described_function import describe_function

        parts = describe_function(function, name, description)
        rules = _PLAIN.with_changes(**policy)
        spec = ToolSpec(wire_name(parts.name), parts.description, parts.signature.parameters, timeout=rules.time_limit)
        self._define(spec, function, parts.signature, rules, original_name=parts.name, nothing=parts.nothing)

    def _define(
        self,
        spec: ToolSpec,
        function: Callable[P, R],
        signature: Signature,
        policy: ToolPolicy,
        *,
        original_name: str,
        nothing: str = "null",
    ) -> None:
        """Set the parts of a new tool."""
        from agentkit_tools.schemas.argument_reader import named_reader

        self.spec = spec
        self.function = function
        reader = named_reader(signature.reader, spec.parameters)
        self._arguments = ToolArguments(reader, spec.parameters, defaults=signature.defaults)
        self._runner = FunctionRunner.of(function, signature.binding, nothing)
        self.original_name = original_name
        self.deps_types = signature.deps_types
        self._adopt(policy)

    def _adopt(self, policy: ToolPolicy) -> None:
        self.policy = policy
        self._semaphores = None if policy.is_plain else Semaphores()
        self.sees_context = self._semaphores is not None or self._runner.bind is not None

    @classmethod
    @with_option_hints
    def from_json_schema(
        cls,
        name: str,
        description: str,
        parameters: Mapping[str, Any] | None,
        function: Callable[P, R],
        *,
        trust: Trust = "trusted",
        **policy: Unpack[PolicyOptions],
    ) -> Tool[P, R]:
        """Create a tool from a JSON Schema, such as the schema of a server, a file or another framework.

        `function` receives the arguments by keyword, without conversion. Type names of other languages (`dict`,
        `float`, `HashMap`) are converted. All keywords of JSON Schema 2020-12 are checked, except `format`, which is an
        annotation in that version, and patterns that cannot be compiled or have more than 10,000 characters.

        Args:
            name: Any text. `wire_name` replaces characters that providers refuse; `original_name` is the text itself.
            description: Text for the model.
            parameters: JSON Schema of an object; None for a tool without parameters.
            function: Sync or async; a parameter annotated `ToolContext` receives the context of the call.
            trust: `untrusted` if a third party, such as a server, wrote the name, the description or the schema: in a
                prompt for a local model, their text then cannot form a control token.
            **policy: Fields of `ToolPolicy`.

        Raises:
            ToolDefinitionError: The schema is invalid or not the schema of an object, is nested too deeply, or contains
                a reference without a target in the schema: other documents are not fetched.
        """
        from agentkit_tools.schemas.argument_reader import JsonArguments
        from agentkit_tools.schemas.described_function import warn_without_description
        from agentkit_tools.schemas.function_schema import context_parameters
        from agentkit_tools.schemas.lenient_schema import SchemaError, normalise

        # The author of untrusted tools, such as the tools of a server, cannot read a warning here.
        if trust == "trusted":
            warn_without_description(name, description)
        rules = _PLAIN.with_changes(**policy)
        try:
            schema = normalise({"type": "object", "properties": {}} if parameters is None else parameters)
            kind = schema if isinstance(schema, bool) else schema.get("type", "object")
            if isinstance(schema, bool) or kind != "object":
                raise SchemaError(f"the parameters of a tool are an object, not {kind}")
            object_schema = {"type": "object", **schema}
            spec = ToolSpec(wire_name(name), description, object_schema, trust=trust, timeout=rules.time_limit)
            arguments = JsonArguments(spec.parameters)
            if "$ref" in spec.json or "$dynamicRef" in spec.json:
                arguments.prepare()  # an unresolvable reference is found now
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ToolDefinitionError(
                f"tool {name}: its JSON Schema cannot be used; {describe_error(error)}", tool=name
            ) from error
        signature = context_parameters(raw(function), tool=name, taken=schema.get("properties", ()))
        signature.reader = arguments.reader()
        created: Tool[P, R] = cls.__new__(cls)
        created._define(spec, function, signature, rules, original_name=name)
        return created

    @classmethod
    def from_provider(cls, native: Mapping[str, Any], *, name: str | None = None) -> Tool[..., Any]:
        """Return a tool that the provider of the model runs, such as a web search.

        Args:
            native: Entry for the provider, sent unchanged, such as
                `{"type": "web_search_20250305", "name": "web_search"}`.
            name: Name of the tool; the `name` or the `type` of the entry if None.

        Raises:
            ToolDefinitionError: The entry has neither a name nor a type, or is not JSON.
        """
        tool_name: object = None
        if isinstance(native, Mapping):
            tool_name = name or native.get("name") or native.get("type") or next(iter(native), None)
        if not isinstance(tool_name, str):
            raise ToolDefinitionError(f"a tool of a provider is a mapping with `type`, got {native!r:.200}")

        async def answer(**arguments: Any) -> Any:
            raise ToolFailure(f"{tool_name} runs at the provider of the model, and cannot be called here")

        # The provider knows its tool, so the spec has no description, and a warning about this would be wrong.
        created = cls.from_json_schema(tool_name, "A tool of the provider.", None, cast(Any, answer))
        try:
            created.spec = replace(created.spec, native=native, description="")
        except ContextError as error:
            raise ToolDefinitionError(f"tool {tool_name}: {error}", tool=tool_name) from error
        return created

    def with_changes(
        self, *, name: str | None = None, description: str | None = None, **policy: Unpack[PolicyOptions]
    ) -> Tool[P, R, D]:
        """Return a copy of the tool with another name, description or policy."""
        other = copy(self)
        if description is not None:
            other.spec = replace(other.spec, description=description)
        if name:
            other.original_name = name
            other.spec = replace(other.spec, name=wire_name(name))
        if policy:
            other._adopt(self.policy.with_changes(**policy))
        if "timeout" in policy:
            other.spec = replace(other.spec, timeout=other.policy.time_limit)
        return other

    @property
    def name(self) -> str:
        """Name for the model."""
        return self.spec.name

    @property
    def description(self) -> str:
        """Description for the model."""
        return self.spec.description

    def deps_problem(self, deps: object) -> str:
        """Return an error message if the tool cannot use the `deps` of a run, otherwise ""."""
        for declared in self.deps_types:
            if fits(deps, declared):
                continue
            got = "None"
            if deps is not None:
                got = name_of_type(type(deps))
            if got == name_of_type(declared):
                got = class_of_other_module(declared, type(deps))
            return f"tool {self.name} needs deps of type {name_of_type(declared)}, got {got}"
        return ""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, without validation and policy."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R, D]:
        """Return the tool bound to `instance`, if it is a tool of a method in a class body."""
        function: Any = self.function
        if not hasattr(function, "__get__"):
            return self
        bound = function.__get__(instance, owner)
        if bound is function:
            return self
        other = cast(Tool[..., R, D], copy(self))
        other.function = bound
        return other

    def strict(self) -> Tool[P, R, D]:
        """Return a copy of the tool with a schema in OpenAI's strict subset, which providers enforce.

        All properties are required, additional properties are not allowed, and null means that a property is omitted.
        Keywords outside of the subset are removed; the arguments are still validated by the full schema.

        Raises:
            ToolDefinitionError: The subset cannot express the parameters; the message lists all such places.
        """
        from agentkit_tools.schemas.strict import strict_parameters

        if self.spec.strict:
            return self
        other = copy(self)
        parameters = strict_parameters(self.spec.parameters, tool=self.name)
        other.spec = replace(self.spec, parameters=parameters, strict=True)
        other._arguments = replace(self._arguments, is_strict=True)
        return other

    def validate(self, arguments: str | Mapping[str, Any]) -> Arguments:
        """Return the validated arguments of a call.

        Args:
            arguments: JSON text from a model, or a mapping.

        Raises:
            ToolArgumentError: The arguments are invalid; the message lists all problems.
            ToolError: `arguments` is neither text nor a mapping.
        """
        if isinstance(arguments, str):
            text = arguments or "{}"
        else:
            check_types(ToolError, "Tool.validate", arguments=(arguments, Mapping, "JSON text or a mapping"))
            text = text_of_arguments(self.name, arguments)
        valid = self._read_at_once(text)
        if valid is not None:
            return valid
        return self._arguments.read(self.name, text, self.policy)

    @with_option_hints
    async def call(self, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Return the result of a call from a model, also if the tool raises an exception or exceeds its time limit.

        An async function runs in the task of the caller. It is abandoned if it ignores its cancellation, by the time
        limit or from outside.

        Raises:
            asyncio.CancelledError: The task that awaits the call was cancelled.
            BaseException: The tool ended the run, see `ends_run`.
        """
        if not isinstance(call, ToolCall):
            raise ToolError(f"Tool.call: expected a ToolCall, got {type(call).__name__}; use {CALLS['Tool.call']}")
        policy = self.policy
        if self._semaphores is not None:
            attempt = partial(self._attempt, call)
            return await enforced(policy, self._semaphores, call, context, partial(self._read, call), attempt)
        seconds = policy.timeout
        arguments = self._arguments.at_once(call.arguments or "{}")
        if arguments is None:
            start = perf_counter()
            try:
                arguments = await self._read(call)
            except (ToolArgumentError, DeadlineError) as error:
                return unread(call, error, policy)
            if seconds is not None:
                seconds = max(seconds - (perf_counter() - start), 0.0)
        return await self._runner.run(self.function, call, arguments, context, policy, seconds)

    def _read_at_once(self, text: str) -> Arguments | None:
        # Fast validation does not notice a name that occurs twice.
        if self.policy.approval != "never":
            return None
        return self._arguments.at_once(text)

    async def _read(self, call: ToolCall) -> Arguments:
        text = call.arguments or "{}"
        arguments = self._read_at_once(text)
        if arguments is None:
            arguments = await self._arguments.read_in_time(self.name, text, self.policy)
        return arguments

    async def _attempt(self, call: ToolCall, arguments: Arguments, context: ToolContext[Any]) -> ToolResult:
        """Call the function once."""
        return await self._runner.run(self.function, call, arguments, context, self.policy, self.policy.timeout)

    async def needs_approval(self, call: ToolCall, context: ToolContext[Any]) -> bool:
        """True if a person must approve `call` first. A call with invalid arguments needs no approval.

        After the approval, set `approved` in the context of the call; otherwise the result of `call` is "denied".
        """
        if self.policy.approval == "never" or context.approved:
            return False
        try:
            arguments = await self._read(call)
            return await needs_approval(self.policy.approval, arguments, context, self.policy.timeout)
        except ToolArgumentError:
            return False
        except Exception as error:
            # The predicate failed: ask a person. The decision shows no error, so the log has it.
            logging.getLogger("agentkit.tools").warning("approval of %s: %s", self.name, describe_error(error))
            return True

    def as_received(self, call: ToolCall) -> ToolCall:
        """Return a call with the arguments that the function receives, as JSON text for the person who approves it.

        They are the validated values, with the defaults of omitted arguments. Invisible characters are escaped. Invalid
        arguments are unchanged.
        """
        text = call.arguments or "{}"
        return replace(call, arguments=self._arguments.received_text(self.name, text, self.policy))

    def __repr__(self) -> str:
        return f"Tool({', '.join([self.name, *self.spec.parameters.get('properties', ())])})"


class ToolDecorator(Protocol):
    """Decorator that `tool(name=..., timeout=...)` returns."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[D2], P2], R2], /
    ) -> Tool[Concatenate[ToolContext[D2], P2], R2, D2]: ...
    @overload
    def __call__(self, function: Callable[P2, R2], /) -> Tool[P2, R2, object]: ...


@overload
def tool(
    function: Callable[Concatenate[ToolContext[D2], P2], R2], /
) -> Tool[Concatenate[ToolContext[D2], P2], R2, D2]: ...
@overload
def tool(function: Callable[P2, R2], /) -> Tool[P2, R2, object]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **policy: Unpack[PolicyOptions]
) -> ToolDecorator: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Create a tool of a function: `@tool`, or `@tool(name=..., timeout=...)`. See `Tool`."""
    if function is None:
        return partial(Tool, **options)
    return Tool(function, **options)
