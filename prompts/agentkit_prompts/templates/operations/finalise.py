"""How a value becomes text: canonical, bounded, and never an address or a hash order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import ModuleType, WrapperDescriptorType
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import MEDIA_OPENING, Media, Text, Url, neutralise_markers
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.errors import TemplateError
from agentkit_prompts.templates.operations.access import made_in_python
from agentkit_prompts.templates.operations.meter import Meter
from agentkit_prompts.templates.operations.values import Composed, Fault, Nothing, RenderedText, Trusted, Undefined

__all__ = ["concat", "is_parts", "json_text", "number_text", "parts_of", "text", "text_kept"]

_MAX_DEPTH = 100
_MAX_BITS = 8192
_SHORT_BITS = 64
_ADDRESS = re.compile(r"\bat 0x[0-9A-Fa-f]{4,}")
_AS_STR = (datetime, date, time, timedelta, UUID, Decimal, PurePath, Url)
_LEAVES = frozenset({str, bool, float, type(None)})
_OF_A_PROVIDER = frozenset({"opaque", "signature", "redacted"})
"""Fields of a message that no other provider may see: a template shows one only where it names it."""
_AS_DATA = (Mapping, list, tuple, BaseModel, Sequence)


def text(meter: Meter, value: object) -> str:
    """Return the text of one value, as a plain str.

    Raises:
        Fault: It has no text that is the same in every process.
    """
    kind = type(value)
    if kind is str:
        return value  # type: ignore[return-value]
    if isinstance(value, str):
        return str.__str__(value)
    if kind is int or kind is float or kind is bool or value is None:
        return number_text(meter, value)
    if isinstance(value, Undefined):
        return "" if kind is Nothing else value.fail()
    if isinstance(value, Enum):
        return text(meter, value.value)
    if isinstance(value, int | float):
        return number_text(meter, value)
    if isinstance(value, Media):
        return value.alt
    if isinstance(value, _AS_STR):
        return _checked(meter, value)
    if hasattr(kind, "__prompt__") or is_parts(value):
        return "".join([part if isinstance(part, str) else part.alt for part in parts_of(meter, value)])
    if isinstance(value, _AS_DATA) or _is_instance_of_dataclass(value):
        return json_text(meter, value)
    return _checked(meter, value)


def text_kept(meter: Meter, value: object) -> str:
    """Return the text of a value that goes into a buffer: rendered text stays what it is."""
    return value if type(value) in (RenderedText, Composed) else text(meter, value)  # type: ignore[return-value]


def concat(meter: Meter, literals: frozenset[str], buffer: list[str]) -> str:
    """Join a buffer. Where rendered text is in it, every other value loses its markers."""
    meter.chars(sum(map(len, buffer)) + len(buffer))
    made = "".join(buffer)
    if MEDIA_OPENING in made and any(type(part) is RenderedText or type(part) is Composed for part in buffer):
        kept = 0
        clean: list[str] = []
        for part in buffer:
            if type(part) is RenderedText or type(part) is Composed:
                kept += part.count(MEDIA_OPENING)
                clean.append(part)
            else:
                clean.append(part if part in literals else neutralise_markers(part))
        made = "".join(clean)
        return Composed(made) if made.count(MEDIA_OPENING) == kept else neutralise_markers(made)
    return made


def json_text(meter: Meter, value: object, indent: int | None = None, *, sort_keys: bool = False) -> str:
    """Return canonical JSON: keys in insertion order, characters as they are, objects by their public fields."""
    before = meter.left
    meter.charge(60)
    data = _as_data(meter, value, 0)
    if indent is not None or sort_keys:  # written by Python code then, not by C
        meter.charge(4 * (before - meter.left))
    if indent is not None and not 0 <= indent <= 16:
        raise Fault(f"JSON indent must be between 0 and 16, got {indent}")
    made = json.dumps(data, ensure_ascii=False, indent=indent, sort_keys=sort_keys)
    meter.chars(len(made))
    return made


def number_text(meter: Meter, value: object) -> str:
    """Return the text of a number, a truth value or None."""
    meter.charge(12)
    if isinstance(value, int):
        bits = int.bit_length(value)
        if bits > _MAX_BITS:
            raise Fault("the number has too many digits to be printed")
        if bits > _SHORT_BITS:
            meter.pay("print int", value)
        return repr(value) if isinstance(value, bool) else int.__repr__(value)
    if value is not None:
        meter.pay("print float", value)
    return repr(value)


def _checked(meter: Meter, value: object) -> str:
    """Call a class's own `__str__` and check what comes out."""
    kind = type(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise Fault(f"{kind.__name__} is not text: decode it, or give it as an image, audio, video or file part")
    if isinstance(value, set | frozenset):
        raise Fault(f"a {kind.__name__} has no fixed order: sort it first, with `|sort`")
    if not _has_own_text(kind):
        raise Fault(f"{kind.__name__} has no text of its own: print one of its fields, or give its class a __str__")
    meter.tick()
    try:
        made = str(value)
    except (Fault, TemplateError):
        raise
    except Exception as error:
        raise Fault(f"the __str__ of {kind.__name__} failed with {type(error).__name__}") from error
    meter.chars(len(made))
    if not isinstance(value, _AS_STR) and _ADDRESS.search(made):
        raise Fault(f"the text of {kind.__name__} shows a memory address: print one of its fields")
    return str.__str__(made)


def _has_own_text(kind: type) -> bool:
    """Tell whether somebody wrote a `__str__` or `__repr__` for a class; the interpreter's own show addresses."""
    if issubclass(kind, (*_AS_STR, BaseException, complex)):
        return True
    if not made_in_python(kind) or issubclass(kind, type | ModuleType):
        return False
    return not all(isinstance(method, WrapperDescriptorType) for method in (kind.__str__, kind.__repr__))


def _is_instance_of_dataclass(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def is_parts(value: object) -> bool:
    """Tell whether a value is a list or tuple of content parts, text among them."""
    if not isinstance(value, tuple | list):
        return False
    found = False
    for part in value:
        if isinstance(part, Media | Text):
            found = True
        elif not isinstance(part, str):
            return False
    return found


def parts_of(meter: Meter, value: object, depth: int = 0) -> Iterator[str | Media]:
    """Yield the text and media of an object with `__prompt__`, or of a sequence of such."""
    meter.charge(2)
    if depth > _MAX_DEPTH:
        raise Fault(f"{type(value).__name__} nests deeper than {_MAX_DEPTH} levels")
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
        raise Fault(f"__prompt__ must give text or content parts, got {type(value).__name__}")


def _as_data(meter: Meter, value: object, depth: int) -> Any:
    """Return plain data that `json.dumps` writes without surprises."""
    kind = type(value)
    if kind in _LEAVES:
        meter.charge(3)
        return value
    if kind is int and value.bit_length() <= _SHORT_BITS:  # type: ignore[attr-defined]
        meter.charge(10)
        return value
    if depth > _MAX_DEPTH:
        raise Fault(f"the data is cyclic or nests deeper than {_MAX_DEPTH} levels")
    deeper = depth + 1
    if kind is list or kind is tuple:
        meter.charge(50 + 4 * len(value))  # type: ignore[arg-type]
        items: Iterable[object] = value  # type: ignore[assignment]
        listed = [item if type(item) in _LEAVES else _as_data(meter, item, deeper) for item in items]
        meter.charge(10 * list(map(type, listed)).count(float))
        meter.charge(len(listed) * depth // 2)  # an indented line is as long as it is deep
        meter.chars(sum([len(item) for item in listed if type(item) is str]))
        return listed
    if kind is dict or isinstance(value, Mapping):
        meter.charge(60 + 14 * len(value))  # type: ignore[arg-type]
        made = {
            key if type(key) is str else _key(key): item if type(item) in _LEAVES else _as_data(meter, item, deeper)
            for key, item in value.items()  # type: ignore[attr-defined]
        }
        meter.charge(10 * list(map(type, made.values())).count(float))
        meter.charge(len(made) * depth // 2)
        meter.chars(sum([len(item) for pair in made.items() for item in pair if type(item) is str]))
        return made
    meter.charge(20)
    if isinstance(value, Enum):
        return _as_data(meter, value.value, deeper)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        number_text(meter, value)
        return value
    if isinstance(value, Undefined):
        value.fail()
    if isinstance(value, Media):
        return value.alt
    if isinstance(value, Text):
        return value.text
    if isinstance(value, BaseModel):
        public = {**value.__dict__, **(value.__pydantic_extra__ or {})}
        return _as_data(meter, {key: item for key, item in public.items() if key[:1] != "_"}, deeper)
    if _is_instance_of_dataclass(value):
        own = _OF_A_PROVIDER if isinstance(value, Message | ToolCall | Thinking) else ()
        names = [field.name for field in fields(value) if field.name[:1] != "_" and field.name not in own]  # type: ignore[arg-type]
        return _as_data(meter, {name: getattr(value, name) for name in names}, deeper)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_as_data(meter, item, deeper) for item in meter.items(value)]
    return _checked(meter, value)


def _key(key: object) -> str | int | float | bool | None:
    if key is None or isinstance(key, str | int | float):
        return str.__str__(key) if isinstance(key, str) else key
    raise Fault(f"JSON keys are text or numbers, got {type(key).__name__}")
