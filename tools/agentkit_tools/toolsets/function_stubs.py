"""Tools as typed Python functions: valid, unique names and stubs for a prompt."""

from __future__ import annotations

import builtins
import inspect
import json
import keyword
import re
import typing
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from agentkit_prompts.errors import start_of
from agentkit_prompts.schemas.references import target_in
from agentkit_tools.schemas.callables import raw
from agentkit_tools.tool import Tool

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_RESERVED = frozenset((*dir(builtins), "__builtins__", "__file__", "asyncio", "json", "math", "re", "self"))
_NOT_WORD = re.compile(r"\W+")
_MAX_DEPTH = 4
"""Maximum depth of types in a stub; deeper values are `Any`."""
_MAX_SCHEMAS = 1_000
"""Maximum schemas that are read for the parameters of a stub; further values are `Any`."""
_MAX_CHOICES = 20
"""Maximum values of a `Literal`."""
_MAX_TEXT = 600
"""Maximum characters of a description in a stub."""


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A tool as a function for code."""

    tool: Tool
    name: str
    """Name of the function, a valid identifier."""
    parameters: Mapping[str, str]
    """Names of the properties of the tool, by the names of the parameters of the function, in order."""

    @property
    def stub(self) -> str:
        """The signature with types, and the descriptions as a docstring."""
        schema = self.tool.spec.parameters
        properties, required = _properties(schema), _names(schema.get("required"))
        root = _Root(schema)
        texts: list[str] = []
        about: list[str] = []
        # Python needs parameters without a default first; the code passes arguments by name.
        ordered = sorted(self.parameters.items(), key=lambda item: item[1] not in required)
        for name, key in ordered:
            text = f"{name}: {_type(root, properties[key])}"
            if key not in required:
                text += f" = {_default(properties[key])}"
            texts.append(text)
            if isinstance(properties[key], Mapping) and properties[key].get("description"):
                about.append(f"{name}: {_one_line(properties[key]['description'])}")
        head = f"async def {self.name}({', '.join(texts)}) -> {_return_type(self.tool)}:"
        lines = [_one_line(self.tool.description) or "No description.", *about]
        if len(lines) == 1:
            return f'{head}\n    """{lines[0]}"""'
        body = "\n    ".join(lines)
        return f'{head}\n    """{body}\n    """'


def tool_functions(tools: Iterable[Tool], taken: Iterable[str] = ()) -> list[ToolFunction]:
    """Return tools as functions with different names.

    Args:
        tools: The tools.
        taken: Further names that functions must not have.
    """
    names = {*taken}
    functions: list[ToolFunction] = []
    for tool in tools:
        name = _identifier(tool.name, names)
        names.add(name)
        parameters: dict[str, str] = {}
        for key in _properties(tool.spec.parameters):
            parameters[_identifier(key, parameters, is_function=False)] = key
        functions.append(ToolFunction(tool, name, parameters))
    return functions


def _identifier(text: str, taken: Iterable[str], *, is_function: bool = True) -> str:
    """Return a valid Python name for a text; it is not in `taken`, and no function has the name of a builtin."""
    # Python compares names in this form.
    name = _NOT_WORD.sub("_", unicodedata.normalize("NFKC", text)) or "_"
    if not name.isidentifier():
        name = f"_{name}"
    if not name.isidentifier():
        name = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if keyword.iskeyword(name) or (is_function and name in _RESERVED):
        name += "_"
    first, number = name, 1
    while name in taken:
        number += 1
        name = f"{first}_{number}"
    return name


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    # A schema from elsewhere can have any JSON here.
    if not isinstance(properties, Mapping):
        return {}
    return properties


def _names(value: Any) -> Sequence[str]:
    if isinstance(value, list | tuple):
        return [name for name in value if isinstance(name, str)]
    return ()


class _Root:
    """The schema of a stub, in which references lead to other schemas.

    Attributes:
        schema: The schema.
        left: Number of further schemas that are read. A few references can lead to millions of schemas.
    """

    __slots__ = ("left", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self.left = _MAX_SCHEMAS


def _type(root: _Root, schema: Any, depth: int = 0) -> str:
    """Return the Python type of the values that a JSON Schema allows; `Any` if the schema is too complex."""
    root.left -= 1
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or root.left < 0:
        return "Any"
    if "$ref" in schema:
        return _type(root, target_in(root.schema, schema["$ref"]), depth + 1)
    if "const" in schema:
        return _literal([schema["const"]])
    if isinstance(schema.get("enum"), list | tuple):
        return _literal(schema["enum"])
    alternatives = _alternatives(schema)
    if alternatives is not None:
        return " | ".join(dict.fromkeys(_type(root, each, depth + 1) for each in alternatives)) or "Any"
    kind = schema.get("type")
    if kind == "array":
        return f"list[{_type(root, schema.get('items'), depth + 1)}]"
    if kind == "object":
        return _object(root, schema, depth)
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _alternatives(schema: Mapping[str, Any]) -> Sequence[Any] | None:
    """Return the schemas of which one applies, also for a list of types; None for a single schema."""
    for key in ("anyOf", "oneOf"):
        schemas = schema.get(key)
        if isinstance(schemas, list | tuple):
            return schemas
    kind = schema.get("type")
    if not isinstance(kind, list | tuple):
        return None
    return [{**schema, "type": each} for each in kind]


def _object(root: _Root, schema: Mapping[str, Any], depth: int) -> str:
    """Return the type of an object; its keys are in the form of an inline `TypedDict`."""
    properties = _properties(schema)
    if not properties:
        return f"dict[str, {_type(root, schema.get('additionalProperties'), depth + 1)}]"
    required = _names(schema.get("required"))
    rows: list[str] = []
    for key, value in properties.items():
        kind = _type(root, value, depth + 1)
        if key not in required:
            kind = f"NotRequired[{kind}]"
        rows.append(f"{key!r}: {kind}")
    return f"TypedDict[{{{', '.join(rows)}}}]"


def _literal(values: Sequence[Any]) -> str:
    plain = [value for value in values if value is None or isinstance(value, str | int | bool)]
    if not plain or len(plain) < len(values) or len(plain) > _MAX_CHOICES:
        return "Any"
    return f"Literal[{', '.join(map(repr, plain))}]"


def _default(schema: Any) -> str:
    """Return the default of an optional parameter; `...` if it is unknown or not short."""
    if not isinstance(schema, Mapping) or "default" not in schema:
        return "..."
    text = repr(schema["default"])
    if len(text) > 40:
        return "..."
    return text


def _return_type(tool: Tool) -> str:
    """Return the type of the value of a tool, if its function has an annotation."""
    function: Any = raw(tool.function)
    try:
        kind = typing.get_type_hints(function).get("return", inspect.Parameter.empty)
        if kind is inspect.Parameter.empty or kind is Any:
            return "Any"
        schema = TypeAdapter(kind).json_schema(mode="serialization")
    except Exception:  # annotations of any code
        return "Any"
    return _type(_Root(schema), schema)


def _one_line(text: Any) -> str:
    """Return a description as one line, which cannot end the docstring."""
    line = start_of(" ".join(str(text).split()), _MAX_TEXT)
    line = line.replace("\\", "\\\\").replace('"""', "'''")
    if line.endswith('"'):
        line = line[:-1] + '\\"'
    return line


def stubs_within(functions: Sequence[ToolFunction], count: Any, max_tokens: int) -> Iterator[str]:
    """Yield the stubs of the first functions, together at most `max_tokens`."""
    used = 0
    for function in functions:
        stub = function.stub
        used += count(stub) + 2
        if used > max_tokens:
            return
        yield stub


def arguments_text(function: ToolFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the arguments of a call of a function as JSON text for the tool.

    Raises:
        TypeError: The arguments do not fit the parameters, as in a call of a Python function.
    """
    names = list(function.parameters)
    if len(args) > len(names):
        raise TypeError(f"{function.name}() takes {len(names)} arguments, got {len(args)}")
    arguments = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name in arguments:
            raise TypeError(f"{function.name}() got multiple values for argument {name!r:.80}")
        arguments[name] = value
    # Unknown names are passed on: the tool reports them with its parameters.
    return json.dumps({function.parameters.get(name, name): value for name, value in arguments.items()})
