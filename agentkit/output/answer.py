"""`AnswerReader`: output schema of requests, and reader of answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from agentkit.output.problem_texts import problem_texts
from agentkit.output.reply_parts import image_of_reply, text_of_reply
from agentkit_prompts.composition.tools_and_output import OutputRequest
from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.json_form import part_adapter
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Image
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool

if TYPE_CHECKING:
    from agentkit.models.model import Model, Reply
    from agentkit.output.schema_output import SchemaOutput
    from agentkit.output.schema_prompt import SchemaPrompt
    from agentkit_prompts.schemas.params import JsonSchema

_VALUE = "value"
"""Property of the wrapper, an object around an answer that is no object: endpoints require an object as root."""
_ANSWER_TOOL = "final_answer"
"""Name of the tool whose arguments are the answer in the mode `tool`."""
_INCOMPLETE = frozenset(("refusal", "length", "content_filter"))
"""Finish reasons of a reply without a complete answer."""


class _OutputSchemas(NamedTuple):
    """Schemas and adapters of an output type, shared by all models."""

    adapter: TypeAdapter[Any] | SchemaOutput
    schema: JsonSchema
    wrapper: TypeAdapter[Any] | None
    """Adapter of the wrapper; None if the answer is an object."""
    requested: JsonSchema
    """Schema of the requested object: the answer or the wrapper."""
    strict: JsonSchema | None
    """`requested` in the subset of JSON Schema that endpoints enforce; None if this is impossible."""


class AnswerReader:
    """Output of one chain: the requested schema, and the reader of replies.

    Attributes:
        schema: JSON Schema of the answer; None for text.
        mode: Mode of the request; None for text.
        request: The output request of compositions.
        prompt: The prompt with the schema, in the mode `prompted`.
        tool: The tool of an output function.
        validators: Pairs of a validator, and True if the validator has a parameter for the context.

    Raises:
        AgentDefinitionError: The output type has no JSON Schema, the model does not support the mode, or a model cannot
            call the function.
    """

    __slots__ = ("_is_image", "_name", "_schemas", "mode", "prompt", "request", "schema", "tool", "validators")

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
        self._schemas: _OutputSchemas | None = None
        self._name = _type_name(spec.output)
        self._is_image = spec.output is Image
        if spec.output is str or self._is_image:
            if spec.mode is not None:
                raise AgentDefinitionError(
                    f"output mode {spec.mode!r}: text has no mode; remove the mode",
                    name="mode",
                    value=spec.mode,
                )
            return
        modes = output_modes_of(model)
        if self.tool is not None:
            self._name, self._schemas = f"call of {self.tool.name}", _return_schemas(self.tool)
            self.schema, mode = cast("JsonSchema", self.tool.spec.parameters), "tool"
            # The agent declares the function as one of its tools, so that the request needs only the schema.
            self.request = OutputRequest(self.schema, "tool")
            if spec.mode not in (None, "tool"):
                raise AgentDefinitionError(
                    f"output={self.tool.name}: a function is a tool, not {spec.mode}", name="mode", value=spec.mode
                )
        else:
            _check_type(spec.output)
            self._schemas = _schemas_of(spec.output)
            self.schema = self._schemas.schema
            mode = spec.mode or modes[0]
        if mode not in modes:
            raise AgentDefinitionError(
                f"model {model.name!r} does not support the output mode {mode!r}; supported modes: {', '.join(modes)}",
                name="mode",
                value=mode,
            )
        self.mode = mode
        if self.tool is None:
            assert self._schemas is not None
            self.request = _request(self._schemas, self.mode)
            if self.mode == "prompted":
                from agentkit.output.schema_prompt import SchemaPrompt

                self.prompt = SchemaPrompt(
                    json_schema=to_json(self._schemas.requested, indent=2).decode(), name="output"
                )

    def with_answer_tool(self, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
        """Return tools by name, and the tool of the output function, if any.

        Raises:
            AgentDefinitionError: A tool has the name of the tool for the answer.
        """
        taken = ""
        if self.tool is not None:
            taken = self.tool.name
        if self.request is not None and self.request.tool is not None:
            taken = self.request.tool.name
        if taken and taken in tools:
            raise AgentDefinitionError(
                f"the tool {taken!r} has the name of the tool for the answer: rename the tool",
                name="tools",
                value=taken,
            )
        if self.tool is None:
            return tools
        return {**tools, self.tool.name: self.tool}

    def reply(self, reply: Reply) -> Reply:
        """Convert a call of the tool for the answer to the text of the reply; return other replies unchanged.

        If the reply also calls other tools, the answer is removed: it does not consider their results.
        """
        if self.request is None or self.request.tool is None or not reply.message.tool_calls:
            return reply
        name = self.request.tool.name
        other_calls = tuple([call for call in reply.message.tool_calls if call.name != name])
        answers = [call.arguments for call in reply.message.tool_calls if call.name == name]
        if not answers:
            return reply
        if other_calls:
            return replace(reply, message=replace(reply.message, tool_calls=other_calls))
        reason = "stop"
        if reply.finish_reason != "tool_calls":
            reason = reply.finish_reason
        message = replace(reply.message, content="\n".join(answers), tool_calls=())
        return replace(reply, message=message, finish_reason=reason)

    def read(self, reply: Reply) -> Any:
        """Return the answer of a reply.

        Raises:
            OutputStopped: The model stopped before the end of the answer.
            OutputError: The answer does not match the output type, and the error lists every problem; or the reply is a
                tool call that cannot be read, and the `name` of the error is `tool_call`.
        """
        text = text_of_reply(reply)
        if self._is_image:
            return image_of_reply(reply, self._name)
        if self._schemas is None:
            return text
        if reply.finish_reason in _INCOMPLETE:
            raise OutputStopped(self._name, text, reply.finish_reason)
        from agentkit.output.json_in_text import json_spans, text_after_thinking, without_fence

        if self.tool is not None:
            raise OutputError(self._name, text, f"call the tool {self.tool.name} with your answer")
        # In the mode `native` the whole text is JSON.
        if self.mode == "native":
            return self._valid(without_fence(text), text)
        whole = without_fence(text)
        try:
            return self._valid(whole, text)
        except OutputError as error:
            problem = error
        rest = text_after_thinking(text)
        spans = json_spans(rest)
        # Wrapped answers first: a bare answer can be a part of the wrapper.
        wrapped_or_bare: tuple[bool, ...] = (False,)
        if self._schemas.wrapper is not None:
            wrapped_or_bare = (True, False)
        for wrapped in wrapped_or_bare:
            # The last span is tried first, because a model can write drafts before its answer.
            for start, end in reversed(spans):
                try:
                    return self._valid(rest[start:end], text, wrapped=wrapped)
                except OutputError as error:
                    problem = error
        if not spans:
            problem = OutputError(self._name, text, "it contains no JSON object")
        raise problem from None

    def validator_error(self, output: Any, problem: str) -> OutputError:
        """Return the error of an answer that a validator refused."""
        text = output
        if not isinstance(output, str):
            text = to_json(output, fallback=str).decode()
        return OutputError(self._name, text, problem)

    def function_result(self, message: Message, results: Mapping[str, ToolResult]) -> ToolResult | None:
        """Return the result of the first successful call of the output function, or else of its first call.

        None if the message does not call the output function.
        """
        name = ""
        if self.tool is not None:
            name = self.tool.name
        matches = [results[call.id] for call in message.tool_calls if call.name == name]
        for result in matches:
            if result.ok:
                return result
        return next(iter(matches), None)

    def function_error(self, result: ToolResult) -> OutputError:
        """Return the error of an output function that failed, after all repairs."""
        return OutputError(self._name, "", result.message.text)

    def function_value(self, result: ToolResult) -> tuple[Any, str]:
        """Return the value of an output function, and the text of its result, which becomes the last message."""
        text = result.whole or result.message.text
        # A replayed result has only its text.
        if result.value is None:
            return self.value_of_text(text), text
        return result.value, text

    def value_of_text(self, text: str) -> Any:
        """Return the value of an output function from its text, by its annotated return type."""
        assert self._schemas is not None
        adapter = self._schemas.adapter
        for read, data in ((adapter.validate_json, text), (adapter.validate_python, text)):
            try:
                value = read(data)
            except ValidationError:
                continue
            # An adapter can change a text, such as strip spaces: the function returned the original text.
            if isinstance(value, str):
                return text
            return value
        if _takes_none(adapter):
            return None
        return text

    def data(self, output: Any) -> Any:
        """Return an answer as JSON data; `from_data` reads the data in another process.

        Raises:
            PydanticSerializationError: The answer has no JSON form.
        """
        if self._is_image:
            return part_adapter().dump_python(output, mode="json", warnings="none")
        if self._schemas is None:
            return output
        return self._schemas.adapter.dump_python(output, mode="json", warnings="none")

    def from_data(self, data: Any) -> Any:
        """Return an answer of the output type from its JSON data; see `data`.

        Raises:
            ValidationError: The data does not match, because the output type of the agent has changed.
        """
        if self._is_image:
            return part_adapter().validate_python(data)
        if self._schemas is None:
            return data
        return self._schemas.adapter.validate_json(to_json(data))

    def _valid(self, text: str, whole: str, *, wrapped: bool | None = None) -> Any:
        """Return the answer in a JSON text.

        Args:
            text: The JSON text.
            whole: Text of the reply, for errors.
            wrapped: True if the wrapper is required, False if it is refused; None if both are valid.

        Raises:
            OutputError: The JSON text does not match the output type.
        """
        schemas = self._schemas
        assert schemas is not None
        problem: ValidationError | None = None
        if schemas.wrapper is not None and wrapped is not False:
            try:
                return _validated(schemas.wrapper, text, schemas.requested).value
            except ValidationError as error:
                problem = error
        if schemas.wrapper is None or not wrapped:
            schema = schemas.schema
            if schemas.wrapper is None:
                schema = schemas.requested
            try:
                return _validated(schemas.adapter, text, schema)
            except ValidationError as error:
                # If the text contains the wrapper, the problem inside the wrapper is more useful.
                if problem is None or not _has_wrapper(text):
                    problem = error
        assert problem is not None
        problems = list(problem_texts(problem, text, wrapper=_VALUE))
        raise OutputError(self._name, whole, "; ".join(problems), name=problems[0].partition(":")[0]) from problem


def _check_type(output: object) -> None:
    """Refuse a value that cannot be a type: types are hashable, and `_schemas_of` caches by the type."""
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

        # With a strict schema, models write null for omitted properties.
        text_without_nulls = without_nulls(text, schema)
        if text_without_nulls is None:
            raise
        return adapter.validate_json(text_without_nulls)


def _has_wrapper(text: str) -> bool:
    return text.lstrip().startswith("{") and f'"{_VALUE}"' in text[:100]


def _request(schemas: _OutputSchemas, mode: OutputMode) -> OutputRequest:
    schema, strict = schemas.requested, False
    if schemas.strict is not None and mode != "prompted":
        schema, strict = schemas.strict, True
    tool = None
    if mode == "tool":
        description = "Give the final answer. Call this once, alone, when you need no other tool any more."
        tool = ToolSpec(_ANSWER_TOOL, description, schema, strict=strict)
    return OutputRequest(schema, mode, strict, tool, schemas.wrapper is not None)


def _function(spec: OutputSpec[Any]) -> Tool[..., Any] | None:
    """Return the tool of an output that is a function or a tool; None for an output type."""
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
def _schemas_of(output: Any) -> _OutputSchemas:
    """Return the schemas and adapters of an output type."""
    from agentkit.output.schema_output import SchemaOutput

    if isinstance(output, SchemaOutput):
        return _OutputSchemas(output, output.schema, None, output.schema, _strict(output.schema))
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(output)
        schema = freeze(adapter.json_schema())
        wrapper = None
        requested = schema
        if schema.get("type") != "object":
            model = create_model(_VALUE, __config__=ConfigDict(extra="forbid"), value=(output, ...))
            wrapper = TypeAdapter(model)
            requested = freeze(wrapper.json_schema())
    except PydanticUserError as error:
        why = str(error).partition("\n")[0]
        raise AgentDefinitionError(
            f"output={_type_name(output)}: the type has no JSON Schema; {why}",
            name="output",
            value=_type_name(output),
        ) from error
    return _OutputSchemas(adapter, schema, wrapper, requested, _strict(requested))


def _strict(requested: JsonSchema) -> JsonSchema | None:
    from agentkit_tools.schemas.strict import strict_parameters

    try:
        return cast("JsonSchema", freeze(strict_parameters(requested, tool=_ANSWER_TOOL)))
    except ToolDefinitionError:
        return None


def _return_schemas(tool: Tool[..., Any]) -> _OutputSchemas:
    """Return the adapter of the return value of an output function, with empty schemas."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(get_type_hints(tool.function)["return"])
    except Exception:
        # The annotation is missing, or pydantic cannot read it.
        adapter = TypeAdapter(Any)
    empty: JsonSchema = cast("JsonSchema", freeze({}))
    return _OutputSchemas(adapter, empty, None, empty, None)


def _takes_none(adapter: TypeAdapter[Any] | SchemaOutput) -> bool:
    try:
        adapter.validate_python(None)
    except ValidationError:
        return False
    return True


def _type_name(output: Any) -> str:
    return getattr(output, "__name__", None) or str(output)
