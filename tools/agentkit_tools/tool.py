"""`Tool`: a function a model can call, with its description, its validator and its policy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast, overload

# These have defaults: a bare `Tool` is a tool of any function.
from typing_extensions import ParamSpec, TypeVar

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import ToolSpec, Trust
from agentkit_prompts.errors import ContextError, check_types
from agentkit_tools.calling.arguments import ToolArguments
from agentkit_tools.calling.deadline import DeadlineError
from agentkit_tools.calling.enforcement import Semaphores, enforced, needs_approval
from agentkit_tools.calling.function_runner import FunctionRunner
from agentkit_tools.calling.tool_policy import PolicyOptions, ToolPolicy
from agentkit_tools.calling.tool_result import ToolResult, unread
from agentkit_tools.errors import (
    ArgumentProblem,
    ToolArgumentError,
    ToolDefinitionError,
    ToolDescriptionWarning,
    ToolError,
    ToolFailure,
    describe_error,
)
from agentkit_tools.schemas.callables import (
    docstring_of,
    inner_function,
    is_model,
    is_unbound_method,
    name_of,
    raw,
    wire_name,
)
from agentkit_tools.schemas.deps_type import fits, name_of_type
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit_tools.schemas.argument_reader import Arguments
    from agentkit_tools.schemas.function_schema import Signature

__all__ = ["Tool", "tool"]

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

_PLAIN = ToolPolicy()


class Tool(Generic[P, R]):
    """A function a model can call. Call it like the function, or through `call` the way an agent does.

    Create a tool with `Tool(function)`, `@tool` or `Tool.from_json_schema`. Tools are immutable: `with_changes` returns
    a changed copy.
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
    """What the model sees."""
    policy: ToolPolicy
    """How it is run."""
    function: Callable[P, R]
    """What it runs."""
    original_name: str
    """The name its author gave it; `name` is what providers accept of it."""
    sees_context: bool
    """Whether the context of a call is looked at: its function takes it, or its policy goes by it."""
    deps_types: tuple[Any, ...]
    """What `ToolContext.deps` must be: the type its function declares with `ToolContext[...]`, or the types, all of
    which hold; empty where any `deps` will do, also none. See `deps_problem`."""

    def __init__(
        self,
        spec: ToolSpec,
        function: Callable[P, R],
        takes: Signature,
        policy: ToolPolicy,
        *,
        original_name: str,
        nothing: str = "null",
    ) -> None:
        from agentkit_tools.schemas.argument_reader import named_reader

        self.spec = spec
        self.function = function
        self._arguments = ToolArguments(named_reader(takes.reader, spec.parameters), spec.parameters)
        self._runner = FunctionRunner.of(function, takes.binding, nothing)
        self.original_name = original_name
        self.deps_types = takes.deps_types
        self._adopt(policy)

    def _adopt(self, policy: ToolPolicy) -> None:
        self.policy = policy
        self._semaphores = None if policy.is_plain else Semaphores()
        self.sees_context = self._semaphores is not None or self._runner.bind is not None

    @classmethod
    def from_function(
        cls,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> Tool[P, R]:
        """Make a tool from a function, a method or any callable: its parameters, types and docstring give the rest.

        A decorator's own docstring and signature count before those of what it decorates.

        Args:
            function: Sync or async; a generator's items are collected. A parameter annotated `ToolContext` receives
                the context of the call and is not shown to the model. A model or dataclass of pydantic's gives a tool
                that returns one, validated as a whole; what has no field is refused unless its config has `extra`.
            name: Name for the model; the name of the function if None.
            description: Text for the model; the prose of the docstring if None. Under `python -OO` there are no
                docstrings: a tool without a description warns with `ToolDescriptionWarning`.
            **policy: Fields of `ToolPolicy`.

        Raises:
            ToolDefinitionError: The signature cannot be described to a model, or the policy makes no sense.
        """
        # What only who makes tools needs is imported by the first one.
        from agentkit_tools.schemas.docstring import read_docstring
        from agentkit_tools.schemas.function_schema import read_signature

        inner = inner_function(function)
        name = name or name_of(function)
        text = read_docstring(docstring_of(function))
        if description is None and not text.text and sys.flags.optimize > 1:
            missing = f"tool {name} has no description: `python -OO` removes docstrings, so give it description=..."
            warn(missing, ToolDescriptionWarning)
        if is_model(function):
            from agentkit_tools.schemas.model_schema import read_model

            takes = read_model(function, text.parameters, tool=name)
        else:
            takes = read_signature(raw(function), text.parameters, tool=name, skip_first=is_unbound_method(function))
        nothing = "null"
        # A function that promises no value has done something; "null" would look like a missing value.
        if getattr(inner, "__annotations__", {}).get("return") in (None, "None"):
            nothing = "done"
        if description is None:
            description = text.text
        rules = _PLAIN.with_changes(**policy)
        spec = ToolSpec(wire_name(name), description, takes.parameters, timeout=rules.time_limit)
        return cls(spec, function, takes, rules, original_name=name, nothing=nothing)

    @classmethod
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
        """Make a tool whose parameters are described elsewhere: by a server, in a file, in another framework.

        `function` receives the arguments by keyword, exactly as the model wrote them. Foreign type names (`dict`,
        `float`, `HashMap`) are understood. All keywords of JSON Schema 2020-12 are checked, except `format`, which is
        an annotation there, and patterns that cannot be compiled.

        Args:
            name: Any text. What a provider would refuse is replaced, see `wire_name`; `original_name` keeps it.
            description: Text for the model.
            parameters: JSON Schema of an object; None for a tool without parameters.
            function: Sync or async; a parameter annotated `ToolContext` receives the context of the call.
            trust: `untrusted` where name, description or schema are not the developer's, such as those of a server:
                in a prompt for a local model their text then cannot become one of its control tokens.
            **policy: Fields of `ToolPolicy`.

        Raises:
            ToolDefinitionError: It is not a schema, describes something else than an object, is nested too deeply, or
                contains a reference that leads nowhere: other documents are not fetched.
        """
        from agentkit_tools.schemas.argument_reader import JsonArguments
        from agentkit_tools.schemas.function_schema import context_parameters
        from agentkit_tools.schemas.lenient_schema import SchemaError, normalise

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
        takes = context_parameters(raw(function), tool=name, taken=schema.get("properties", ()))
        takes.reader = arguments.reader()
        return cls(spec, function, takes, rules, original_name=name)

    @classmethod
    def from_provider(cls, native: Mapping[str, Any], *, name: str | None = None) -> Tool[..., Any]:
        """Return a tool that the provider of the model runs itself, such as a web search: sent as it is.

        Args:
            native: The entry that the provider takes, such as `{"type": "web_search_20250305", "name": "web_search"}`.
            name: What it is called here; by default the `name` in it, or the `type`.

        Raises:
            ToolDefinitionError: There is neither, or it is not JSON.
        """
        found = name or native.get("name") or native.get("type") or next(iter(native), None)
        if not isinstance(found, str):
            raise ToolDefinitionError(f"a tool of a provider is a mapping with `type`, got {dict(native)!r:.200}")

        async def answer(**arguments: Any) -> Any:
            raise ToolFailure(f"{found} runs at the provider of the model, and cannot be called here")

        made = cls.from_json_schema(found, "", None, cast(Any, answer))
        try:
            made.spec = replace(made.spec, native=native)
        except ContextError as error:
            raise ToolDefinitionError(f"tool {found}: {error}", tool=found) from error
        return made

    def with_changes(
        self, *, name: str | None = None, description: str | None = None, **policy: Unpack[PolicyOptions]
    ) -> Tool[P, R]:
        """Return the tool under another name, with another description or another policy."""
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
        """The name the model calls it by."""
        return self.spec.name

    @property
    def description(self) -> str:
        """What the model reads about it."""
        return self.spec.description

    def deps_problem(self, deps: object) -> str:
        """Return what is wrong with the `deps` of a run for this tool; "" where nothing is."""
        for declared in self.deps_types:
            if fits(deps, declared):
                continue
            got = "None"
            if deps is not None:
                got = name_of_type(type(deps))
            return f"tool {self.name} needs deps of type {name_of_type(declared)}, got {got}"
        return ""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no validation, no policy."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R]:
        """Return the tool bound to `instance`, when it was made from a method in a class body."""
        function: Any = self.function
        if not hasattr(function, "__get__"):
            return self
        bound = function.__get__(instance, owner)
        if bound is function:
            return self
        other = cast(Tool[..., R], copy(self))
        other.function = bound
        return other

    def strict(self) -> Tool[P, R]:
        """Return the tool with a schema in OpenAI's strict subset, which keeps a model from writing anything else.

        Every property is required, nothing is additional, and null stands for what may be left out. Limits the subset
        has no words for are left out; the arguments are still validated against them.

        Raises:
            ToolDefinitionError: The parameters do not fit into that subset; every place at fault is named.
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
            arguments: JSON text, as a model writes it, or a mapping.

        Raises:
            ToolArgumentError: They cannot be used; the message names every problem.
            ToolError: `arguments` is neither text nor a mapping.
        """
        check_types(ToolError, "Tool.validate", arguments=(arguments, (str, Mapping), "JSON text or a mapping"))
        text = arguments or "{}"
        if not isinstance(text, str):
            text = self._json(text)
        valid = self._arguments.at_once(text)
        if valid is not None:
            return valid
        return self._arguments.read(self.name, text, repair=self.policy.repair)

    def _json(self, arguments: Mapping[str, Any]) -> str:
        try:
            return json.dumps(dict(arguments))
        except (TypeError, ValueError) as error:
            reason = str(error)
        except RecursionError:
            reason = "nested too deeply"
        raise ToolArgumentError(self.name, [ArgumentProblem("", f"cannot be written as JSON: {reason}")])

    async def call(self, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Answer a model's call. An exception of the tool, and a call after its time limit, are results, too.

        An async function runs in the task of the caller. It is abandoned if it ignores its cancellation, by the time
        limit or from outside.

        Raises:
            asyncio.CancelledError: The task that awaits the call was cancelled.
            BaseException: What the tool raised that does not derive from `Exception`, such as `KeyboardInterrupt`,
                `SystemExit` or what an engine for durable execution controls its flow with.
        """
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

    async def _read(self, call: ToolCall) -> Arguments:
        text = call.arguments or "{}"
        arguments = self._arguments.at_once(text)
        if arguments is None:
            arguments = await self._arguments.read_in_time(self.name, text, self.policy)
        return arguments

    async def _attempt(self, call: ToolCall, arguments: Arguments, context: ToolContext[Any]) -> ToolResult:
        """Call the function once."""
        policy = self.policy
        return await self._runner.run(self.function, call, arguments, context, policy, policy.timeout)

    async def needs_approval(self, call: ToolCall, context: ToolContext[Any]) -> bool:
        """Return whether a person must agree to `call` first; a call whose arguments are wrong needs no approval.

        When someone agreed, set `approved` in the context of the call: without it `call` answers "denied".
        """
        if self.policy.approval == "never" or context.approved:
            return False
        try:
            arguments = await self._read(call)
            return await needs_approval(self.policy.approval, arguments, context, self.policy.timeout)
        except ToolArgumentError:
            return False
        except Exception:
            # The predicate failed: ask a person.
            return True

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
