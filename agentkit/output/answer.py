"""`AnswerReader`: what a model is asked for as the answer, and what reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from agentkit.errors import AgentDefinitionError, OutputError, OutputStopped
from agentkit.models.abilities import OutputMode, output_modes_of
from agentkit.output.output_spec import OutputSpec, OutputValidator
from agentkit_prompts.composition.declarations import OutputRequest
from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool

if TYPE_CHECKING:
    from agentkit.models.model import Model, Reply
    from agentkit.output.schema_output import SchemaOutput
    from agentkit.output.schema_prompt import SchemaPrompt
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["AnswerReader"]

_VALUE = "value"
"""The one property of the object that an answer of another kind is wrapped in: endpoints take no other root."""
_TOOL = "final_answer"
_MAX_PROBLEMS = 50
_MAX_PLACE = 200
_STOPS = frozenset(("refusal", "length", "content_filter"))


class _Kind(NamedTuple):
    """What is known of a type of answers, whatever model is asked."""

    adapter: TypeAdapter[Any] | SchemaOutput
    schema: JsonSchema
    wrapper: TypeAdapter[Any] | None
    """Reads the object that an answer which is no object is wrapped in."""
    asked: JsonSchema
    """Schema of the object."""
    strict: JsonSchema | None
    """The same in the subset that endpoints enforce; None where that has no words for it."""


class AnswerReader:
    """What one chain asks for, and what reads the replies.

    Attributes:
        schema: JSON Schema of the answer; None for text.
        mode: How it is asked for.
        request: What a composition declares.
        prompt: The prompt that asks for it, in the mode `prompted`.
        tool: The tool that is called with the answer, where the output is a function.
        validators: What checks the answer, and whether each takes a context.

    Raises:
        AgentDefinitionError: The output type cannot be described as JSON Schema, the model has no such mode, or the
            function cannot be called by a model.
    """

    __slots__ = ("_kind", "_name", "mode", "prompt", "request", "schema", "tool", "validators")

    def __init__(self, output: Any, model: Model) -> None:
        spec: OutputSpec[Any] = output
        if not isinstance(output, OutputSpec):
            spec = OutputSpec(output)
        self.validators: tuple[tuple[OutputValidator, bool], ...] = spec.validators
        self.schema: JsonSchema | None = None
        self.mode: OutputMode | None = None
        self.request: OutputRequest | None = None
        self.prompt: SchemaPrompt | None = None
        self.tool = _function(spec)
        self._kind: _Kind | None = None
        self._name = _type_name(spec.output)
        if spec.output is str:
            if spec.mode is not None:
                raise AgentDefinitionError(
                    f"output mode {spec.mode!r}: text is asked for in no mode; leave it out",
                    name="mode",
                    value=spec.mode,
                )
            return
        modes = output_modes_of(model)
        if self.tool is not None:
            self._name, self._kind = f"call of {self.tool.name}", _returned(self.tool)
            self.schema, wanted = cast("JsonSchema", self.tool.spec.parameters), "tool"
            # The tool is declared as all tools are, so the request has the schema only.
            self.request = OutputRequest(self.schema, "tool")
            if spec.mode not in (None, "tool"):
                raise AgentDefinitionError(
                    f"output={self.tool.name}: a function is a tool, not {spec.mode}", name="mode", value=spec.mode
                )
        else:
            _check_type(spec.output)
            self._kind = _kind(spec.output)
            self.schema = self._kind.schema
            wanted = spec.mode or modes[0]
        if wanted not in modes:
            raise AgentDefinitionError(
                f"model {model.name!r} cannot be asked for an answer in the mode {wanted!r}: it has {', '.join(modes)}",
                name="mode",
                value=wanted,
            )
        self.mode = wanted
        if self.tool is None:
            assert self._kind is not None
            self.request = _request(self._kind, self.mode, self._name)
            if self.mode == "prompted":
                from agentkit.output.schema_prompt import SchemaPrompt

                self.prompt = SchemaPrompt(asked=to_json(self._kind.asked, indent=2).decode(), name="output")

    def equipped(self, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
        """Return tools by name, with the function that takes the answer, if there is one.

        Raises:
            AgentDefinitionError: There is a tool of the name of what takes the answer.
        """
        taken = ""
        if self.tool is not None:
            taken = self.tool.name
        if self.request is not None and self.request.tool is not None:
            taken = self.request.tool.name
        if taken and taken in tools:
            raise AgentDefinitionError(
                f"there is a tool named {taken!r}, as is what takes the answer: rename it", name="tools", value=taken
            )
        if self.tool is None:
            return tools
        return {**tools, self.tool.name: self.tool}

    def reply(self, reply: Reply) -> Reply:
        """Return a reply with its answer as text, where the model called the tool that takes it.

        Beside calls of other tools it is left out: the model has not seen yet what they return.
        """
        if self.request is None or self.request.tool is None or not reply.message.tool_calls:
            return reply
        name = self.request.tool.name
        others = tuple([call for call in reply.message.tool_calls if call.name != name])
        answers = [call.arguments for call in reply.message.tool_calls if call.name == name]
        if not answers:
            return reply
        # The model has not seen yet what the other tools return, so its answer is not final.
        if others:
            return replace(reply, message=replace(reply.message, tool_calls=others))
        reason = "stop"
        if reply.finish_reason != "tool_calls":
            reason = reply.finish_reason
        message = replace(reply.message, content="\n".join(answers), tool_calls=())
        return replace(reply, message=message, finish_reason=reason)

    def read(self, reply: Reply) -> Any:
        """Return the answer of a reply.

        Raises:
            OutputStopped: The model stopped before there was one.
            OutputError: The answer is not the output type; names every problem.
        """
        text = reply.message.text
        if self._kind is None:
            return text
        if reply.finish_reason in _STOPS:
            raise OutputStopped(self._name, text, reply.finish_reason)
        from agentkit.output.json_in_text import behind_thinking, json_spans, without_fence

        if self.tool is not None:
            raise OutputError(self._name, text, f"call the tool {self.tool.name} with your answer")
        # The endpoint promises JSON and nothing else.
        if self.mode == "native":
            return self._valid(without_fence(text), text)
        whole = without_fence(text)
        try:
            return self._valid(whole, text)
        except OutputError as error:
            problem = error
        rest = behind_thinking(text)
        spans = json_spans(rest)
        forms: tuple[bool, ...] = (False,)
        if self._kind.wrapper is not None:
            forms = (True, False)
        for wrapped in forms:
            # The last span is the answer, because a model may try others before it.
            for start, end in reversed(spans):
                try:
                    return self._valid(rest[start:end], text, wrapped=wrapped)
                except OutputError as error:
                    problem = error
        if not spans:
            problem = OutputError(self._name, text, "it contains no JSON object")
        raise problem from None

    def refused(self, output: Any, problem: str) -> OutputError:
        """Return the error of an answer that a validator does not take."""
        text = output
        if not isinstance(output, str):
            text = to_json(output, fallback=str).decode()
        return OutputError(self._name, text, problem)

    def ending(self, message: Message, results: Mapping[str, ToolResult]) -> ToolResult | None:
        """Return the result of the call that ends a run: the first that ended well, else the first there is."""
        name = ""
        if self.tool is not None:
            name = self.tool.name
        found = [results[call.id] for call in message.tool_calls if call.name == name]
        for result in found:
            if result.ok:
                return result
        return next(iter(found), None)

    def failed(self, result: ToolResult) -> OutputError:
        """Return the error of a function that could not take the answer, after all repair turns."""
        return OutputError(self._name, "", result.message.text)

    def returned(self, result: ToolResult) -> tuple[Any, str]:
        """Return what a function returned, and the text of it that ends the conversation of the run."""
        text = result.whole or result.message.text
        # A journal has the text only.
        if result.value is None:
            return self.restored(text), text
        return result.value, text

    def restored(self, text: str) -> Any:
        """Return what a function returned, from its text: a value of the type that it is annotated with."""
        assert self._kind is not None
        adapter = self._kind.adapter
        for read, given in ((adapter.validate_json, text), (adapter.validate_python, text)):
            try:
                value = read(given)
            except ValidationError:
                continue
            # Text stays as it was written: the adapter may have changed it.
            if isinstance(value, str):
                return text
            return value
        if _takes_none(adapter):
            return None
        return text

    def data(self, output: Any) -> Any:
        """Return an answer as JSON data, which `of_data` reads in another process.

        Raises:
            PydanticSerializationError: It has no JSON form.
        """
        if self._kind is None:
            return output
        return self._kind.adapter.dump_python(output, mode="json", warnings="none")

    def of_data(self, data: Any) -> Any:
        """Return the answer that `data` wrote, of the output type.

        Raises:
            ValidationError: It is of another type: that of the agent has changed.
        """
        if self._kind is None:
            return data
        return self._kind.adapter.validate_json(to_json(data))

    def _valid(self, text: str, whole: str, *, wrapped: bool | None = None) -> Any:
        """Return the answer that a text in JSON is; `wrapped` where it has to be in an object, or must not be."""
        kind = self._kind
        assert kind is not None
        problem: ValidationError | None = None
        if kind.wrapper is not None and wrapped is not False:
            try:
                return _validated(kind.wrapper, text, kind.asked).value
            except ValidationError as error:
                problem = error
        if kind.wrapper is None or not wrapped:
            schema = kind.asked if kind.wrapper is None else kind.schema
            try:
                return _validated(kind.adapter, text, schema)
            except ValidationError as error:
                # If the text has the key of the wrapper, the problem inside the wrapper is the useful one.
                if problem is None or not _has_value(text):
                    problem = error
        assert problem is not None
        problems = list(_shown(problem))
        raise OutputError(self._name, whole, "; ".join(problems), name=problems[0].partition(":")[0]) from problem


def _check_type(output: object) -> None:
    try:
        hash(output)
    except TypeError:
        raise AgentDefinitionError(
            f"output={output!r:.80}: expected a type, such as City or Invoice | Line, or a function",
            name="output",
            value=type(output).__name__,
        ) from None


def _validated(adapter: TypeAdapter[Any] | SchemaOutput, text: str, schema: JsonSchema) -> Any:
    try:
        return adapter.validate_json(text)
    except ValidationError:
        from agentkit_tools.calling.argument_repair import without_nulls

        # A strict schema makes a model write null for what it leaves out.
        shorter = without_nulls(text, schema)
        if shorter is None:
            raise
        return adapter.validate_json(shorter)


def _has_value(text: str) -> bool:
    return text.lstrip().startswith("{") and f'"{_VALUE}"' in text[:100]


def _shown(error: ValidationError) -> Iterator[str]:
    """Yield the problems as the model reads them when it is asked again: not as many as it can make."""
    items = error.errors(include_url=False, include_context=False, include_input=False)
    for item in items[:_MAX_PROBLEMS]:
        place = [*map(str, item["loc"])]
        if place and place[0] == _VALUE and error.title == _VALUE:
            place = place[1:]
        where = ".".join(place) or "answer"
        yield f"{where if len(where) <= _MAX_PLACE else f'{where[:_MAX_PLACE]}...'}: {item['msg']}"
    if len(items) > _MAX_PROBLEMS:
        yield f"and {len(items) - _MAX_PROBLEMS:,} more"


def _request(kind: _Kind, mode: OutputMode, name: str) -> OutputRequest:
    schema, strict = (kind.asked, False) if kind.strict is None or mode == "prompted" else (kind.strict, True)
    tool = None
    if mode == "tool":
        description = "Give the final answer. Call this once, alone, when you need no other tool any more."
        tool = ToolSpec(_TOOL, description, schema, strict=strict)
    return OutputRequest(schema, mode, strict, tool, kind.wrapper is not None)


def _function(spec: OutputSpec[Any]) -> Tool[..., Any] | None:
    """Return the tool of an output that is a function or a tool."""
    output = spec.output
    if isinstance(output, Tool):
        return output
    if not isinstance(output, FunctionType | MethodType | BuiltinFunctionType | partial):
        return None
    try:
        return Tool(cast(Callable[..., Any], output))
    except ToolDefinitionError as error:
        raise AgentDefinitionError(
            f"output={_type_name(output)}: a model cannot call this function: {error}",
            name="output",
            value=_type_name(output),
        ) from error


@lru_cache(maxsize=256)
def _kind(output: Any) -> _Kind:
    """Return what is known of a type: it is shared by all chains."""
    from agentkit.output.schema_output import SchemaOutput

    if isinstance(output, SchemaOutput):
        return _Kind(output, output.schema, None, output.schema, _strict(output.schema))
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(output)
        schema = freeze(adapter.json_schema())
        wrapper = None
        asked = schema
        if schema.get("type") != "object":
            model = create_model(_VALUE, __config__=ConfigDict(extra="forbid"), value=(output, ...))
            wrapper = TypeAdapter(model)
            asked = freeze(wrapper.json_schema())
    except PydanticUserError as error:
        why = str(error).partition("\n")[0]
        raise AgentDefinitionError(
            f"output={_type_name(output)}: a model can only be asked for types that JSON Schema can describe; {why}",
            name="output",
            value=_type_name(output),
        ) from error
    return _Kind(adapter, schema, wrapper, asked, _strict(asked))


def _strict(asked: JsonSchema) -> JsonSchema | None:
    from agentkit_tools.schemas.strict import strict_parameters

    try:
        return cast("JsonSchema", freeze(strict_parameters(asked, tool=_TOOL)))
    except ToolDefinitionError:
        return None


def _returned(tool: Tool[..., Any]) -> _Kind:
    """Return what reads the value that a function returned."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(get_type_hints(tool.function)["return"])
    except Exception:
        # The annotation is missing, or pydantic cannot read it.
        adapter = TypeAdapter(Any)
    empty: JsonSchema = cast("JsonSchema", freeze({}))
    return _Kind(adapter, empty, None, empty, None)


def _takes_none(adapter: TypeAdapter[Any] | SchemaOutput) -> bool:
    try:
        adapter.validate_python(None)
    except ValidationError:
        return False
    return True


def _type_name(output: Any) -> str:
    return getattr(output, "__name__", None) or str(output)
