"""Text of a value in a prompt, which is equal in every process: JSON for data, no memory addresses, no sets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import ModuleType, WrapperDescriptorType
from typing import Any
from uuid import UUID

from jinja2 import Undefined
from jinja2.runtime import LoopContext, Macro
from jinja2.utils import Cycler, Joiner, Namespace
from pydantic import BaseModel

from agentkit_prompts.context.items import ContextItem, ToolSpec
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import MEDIA_OPENING, Media, Text, Url, neutralise_markers
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.errors import TemplateError
from agentkit_prompts.limits import MAX_DEPTH
from agentkit_prompts.templates.sandbox.attributes import is_python_class
from agentkit_prompts.templates.sandbox.guards import MAX_INDENT
from agentkit_prompts.templates.sandbox.meter import Meter, refuse_large
from agentkit_prompts.templates.sandbox.operation_errors import TemplateOperationError
from agentkit_prompts.templates.sandbox.values import Composed, RenderedText, Trusted

_ADDRESS = re.compile(r"\bat 0x[0-9A-Fa-f]{4,}")
_AS_STR = (datetime, date, time, timedelta, UUID, Decimal, PurePath, Url)
_TEXTS = (str, bytes, bytearray, memoryview)
_LEAVES = frozenset({str, bool, float, type(None)})
_PROVIDER_FIELDS = frozenset({"opaque", "signature", "redacted"})
"""Fields of a message with data of one provider. The JSON text of a message omits these fields; a template can print
such a field by its name."""
_ITEM_SETTINGS = frozenset({"trust", "atomic"})
"""Fields of a context item that only composition reads. The JSON text of an item omits these fields."""
_AS_DATA = (Mapping, list, tuple, BaseModel, Sequence)
_OF_JINJA = (Cycler, Joiner, LoopContext, Macro, Namespace)


def text(meter: Meter, value: object) -> str:
    """Return the text of a value as plain `str`.

    Raises:
        TemplateOperationError: The value has no text, or its text would not be equal in every process.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Undefined):
        return str(value)
    if isinstance(value, Enum):
        return text(meter, value.value)
    if value is None or isinstance(value, int | float):
        return number_text(meter, value)
    if isinstance(value, _AS_STR):
        return _own_text(meter, value)
    if is_content(value):
        return _text_of_content(meter, value)
    if isinstance(value, tuple) and value and isinstance(value[0], ToolSpec):
        return _text_of_tools(meter, value)
    if isinstance(value, _AS_DATA) or _is_instance_of_dataclass(value):
        return json_text(meter, value)
    return _own_text(meter, value)


def text_for_buffer(meter: Meter, value: object) -> str:
    """Return the text of a value for the buffer of a macro or set block; rendered text keeps its type."""
    return value if type(value) in (RenderedText, Composed) else text(meter, value)  # type: ignore[return-value]


def concat(meter: Meter, buffer: list[str]) -> str:
    """Return the joined texts of a buffer. If some are rendered text, openings of markers in other texts are broken."""
    joined = meter.join(buffer)
    if MEDIA_OPENING not in joined:
        return joined
    real = [part for part in buffer if type(part) is RenderedText or type(part) is Composed]
    if not real:
        return joined
    return _without_other_markers(buffer, real)


def _without_other_markers(buffer: Sequence[str], real: Sequence[str]) -> str:
    """Return the joined texts of a buffer; only markers in the texts `real` stay markers."""
    clean = "".join([part if type(part) is not str else neutralise_markers(part) for part in buffer])
    # If neighbouring texts form an opening together, all markers are broken: the real markers cannot be distinguished.
    if clean.count(MEDIA_OPENING) != sum(part.count(MEDIA_OPENING) for part in real):
        return neutralise_markers(clean)
    return Composed(clean)


def json_text(meter: Meter, value: object, indent: int | None = None, *, sort_keys: bool = False) -> str:
    """Return the JSON text of data: keys in insertion order, no escapes for characters outside of ASCII, and objects as
    their public fields.
    """
    if indent is not None and not 0 <= indent <= MAX_INDENT:
        raise TemplateOperationError(f"JSON indent must be between 0 and {MAX_INDENT}, got {indent}")
    meter.deep(value)
    data = _as_data(meter, value, 0, indent or 0)
    written = json.dumps(data, ensure_ascii=False, indent=indent, sort_keys=sort_keys)
    meter.make(len(written))
    return written


def number_text(meter: Meter, value: float | None) -> str:
    """Return the text of a number, a boolean or None, and count it."""
    refuse_large(value)
    digits = _digits(value)
    meter.make_small(len(digits))
    return digits


def _digits(value: float | None) -> str:
    """Return the text of a number by the methods of `int` and `float`, which subclasses of `int` can override."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value)
    return repr(value)


def _text_of_content(meter: Meter, value: object) -> str:
    """Return the text of content parts; media are replaced by their alt text."""
    return meter.join([part if isinstance(part, str) else part.alt for part in parts_of(meter, value)])


def _text_of_tools(meter: Meter, tools: tuple[ToolSpec, ...]) -> str:
    """Return one line of JSON for each tool, as `ToolPrompt` shows the tools."""
    return "\n".join([json_text(meter, tool) for tool in tools])


def _str_of(value: object) -> str:
    try:
        return str(value)
    except (TemplateOperationError, TemplateError):
        raise
    except Exception as error:
        raise TemplateOperationError(
            f"the __str__ of {type(value).__name__} failed with {type(error).__name__}"
        ) from error


def _own_text(meter: Meter, value: object) -> str:
    """Return the result of `__str__`, after a check that it is equal in every process."""
    kind = type(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise TemplateOperationError(
            f"{kind.__name__} is not text: decode it, or pass it as an image, audio, video or file part"
        )
    if isinstance(value, set | frozenset):
        raise TemplateOperationError(f"a {kind.__name__} has no fixed order: sort it first, with `|sort`")
    if not _has_own_text(kind):
        raise TemplateOperationError(f"{kind.__name__} has no text: print a field, or define __str__ in its class")
    result = _str_of(value)
    meter.make(len(result))
    meter.tick()
    if not isinstance(value, _AS_STR) and _ADDRESS.search(result):
        raise TemplateOperationError(f"the text of {kind.__name__} contains a memory address: print a field")
    return str.__str__(result)


def _has_own_text(kind: type) -> bool:
    """True if the class defines `__str__` or `__repr__`; the methods of `object` show a memory address."""
    if issubclass(kind, (*_AS_STR, BaseException, complex)):
        return True
    if not is_python_class(kind) or issubclass(kind, (type, ModuleType, *_OF_JINJA)):
        return False
    return not all(isinstance(method, WrapperDescriptorType) for method in (kind.__str__, kind.__repr__))


def _is_instance_of_dataclass(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def is_content(value: object) -> bool:
    """True if a value is printed as content parts: a part, an object with `__prompt__`, or a list with parts."""
    if isinstance(value, Media) or hasattr(type(value), "__prompt__"):
        return True
    if not isinstance(value, tuple | list):
        return False
    # Checking the set of types of a long list is ten times as fast as checking each item.
    kinds = set(map(type, value))
    has_part = any(issubclass(kind, Media | Text) for kind in kinds)
    return has_part and all(issubclass(kind, Media | Text | str) for kind in kinds)


def parts_of(meter: Meter, value: object, depth: int = 0) -> Iterator[str | Media]:
    """Yield the texts and media of a value for which `is_content` is true."""
    meter.visit(1)
    if depth > MAX_DEPTH:
        raise TemplateOperationError(f"{type(value).__name__} nests deeper than {MAX_DEPTH} levels")
    if isinstance(value, Media):
        yield value
    elif isinstance(value, str):
        yield value if type(value) in (str, RenderedText, Trusted) else str.__str__(value)
    elif hasattr(type(value), "__prompt__"):
        yield from parts_of(meter, value.__prompt__(), depth + 1)  # type: ignore[attr-defined]
    elif isinstance(value, tuple | list):
        for part in value:
            yield from parts_of(meter, part, depth + 1)
    else:
        raise TemplateOperationError(f"__prompt__ must return text or content parts, got {type(value).__name__}")


def _as_data(meter: Meter, value: object, depth: int, indent: int) -> Any:
    """Return the data of a value for `json.dumps`, in plain Python types."""
    if type(value) in _LEAVES:
        return value
    if depth > MAX_DEPTH:
        raise TemplateOperationError(f"the data is cyclic or nests deeper than {MAX_DEPTH} levels")
    if isinstance(value, Enum):
        return _as_data(meter, value.value, depth + 1, indent)
    if isinstance(value, Mapping):
        return _as_dict(meter, value, depth, indent)
    if isinstance(value, Sequence) and not isinstance(value, _TEXTS):
        return _as_list(meter, value, depth, indent)
    public = _public_fields(value)
    if public is not None:
        return _as_dict(meter, public, depth, indent)
    return _as_leaf(meter, value)


def _as_leaf(meter: Meter, value: object) -> str | float:
    """Return the text or number that JSON contains for a value without items."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        refuse_large(value)
        return value
    if isinstance(value, Undefined):
        return str(value)
    if isinstance(value, Media):
        return value.alt
    if isinstance(value, Text):
        return value.text
    return _own_text(meter, value)


def _public_fields(value: object) -> dict[str, object] | None:
    """Return the public fields of a model or dataclass; None for other values and for content parts."""
    if isinstance(value, BaseModel):
        return _public({**value.__dict__, **(value.__pydantic_extra__ or {})})
    if not is_dataclass(value) or isinstance(value, type | Media | Text):
        return None
    if isinstance(value, ToolSpec):
        return _fields_of_tool(value)
    data = _public({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, Message | ToolCall | Thinking):
        return {name: item for name, item in data.items() if name not in _PROVIDER_FIELDS}
    if isinstance(value, ContextItem):
        return {name: item for name, item in data.items() if name not in _ITEM_SETTINGS}
    return data


def _fields_of_tool(tool: ToolSpec) -> dict[str, object]:
    """Return the fields that `ToolSpec.json` contains."""
    if tool.native is not None:
        return {**tool.native}
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _public(data: dict[str, object]) -> dict[str, object]:
    return {name: item for name, item in data.items() if name[:1] != "_"}


def _as_list(meter: Meter, value: Sequence[object], depth: int, indent: int) -> list[Any]:
    _count(meter, len(value), 2 + indent * depth)
    listed = [item if type(item) in _LEAVES else _as_data(meter, item, depth + 1, indent) for item in value]
    meter.make(sum([len(item) for item in listed if type(item) is str]))
    return listed


def _as_dict(meter: Meter, value: Mapping[Any, object], depth: int, indent: int) -> dict[Any, Any]:
    _count(meter, len(value), 4 + indent * depth)
    keys = [key if type(key) is str else _key(key) for key in value]
    items = value.values()
    listed = [item if type(item) in _LEAVES else _as_data(meter, item, depth + 1, indent) for item in items]
    meter.make(sum([len(item) for item in (*keys, *listed) if type(item) is str]))
    return dict(zip(keys, listed, strict=True))


def _count(meter: Meter, items: int, chars: int) -> None:
    """Count the items of a container, and `chars` characters of punctuation and indent for each item."""
    meter.tick()
    meter.visit(items)
    meter.make(items * chars)


def _key(key: object) -> str | int | float | bool | None:
    if key is None or isinstance(key, str | int | float):
        if isinstance(key, str):
            return str.__str__(key)
        return key
    raise TemplateOperationError(f"JSON keys must be text or numbers, got {type(key).__name__}")
