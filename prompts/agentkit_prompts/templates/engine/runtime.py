"""What compiled templates can call: every name that generated code uses and does not define itself."""

from __future__ import annotations

from typing import Any

from agentkit_prompts.templates.engine import access, finalise, methods, operators
from agentkit_prompts.templates.engine.meter import Meter
from agentkit_prompts.templates.engine.objects import GLOBALS, UNSET, Loop, Macro, Namespace
from agentkit_prompts.templates.engine.trace import emit
from agentkit_prompts.templates.engine.values import Fault, Undefined

__all__ = ["RUNTIME"]


def _set_name(target: Any, name: str, value: Any) -> None:
    if type(target) is not Namespace:
        if isinstance(target, Undefined):
            target.fail()
        raise Fault(f"only a namespace can be assigned to, not {type(target).__name__}")
    if name[:1] == "_":
        raise Fault(f"{name[:80]!r} is private: templates use public names only", name[:80])
    target.names[name] = value


def _unpack(meter: Meter, value: Any, count: int) -> Any:
    items = meter.items(value)
    if len(items) != count:
        raise Fault(f"{type(value).__name__} has {len(items)} items where {count} are unpacked")
    return items


def _mapping(meter: Meter, pairs: tuple[tuple[Any, Any], ...]) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key, value in pairs:
        if not isinstance(key, str):
            meter.measure(key)
        made[key] = value
    return made


def _keywords(meter: Meter, value: Any) -> dict[str, Any]:
    if isinstance(value, Undefined):
        value.fail()
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Fault("** takes a mapping whose keys are text")
    meter.charge(len(value))
    return value


RUNTIME: dict[str, Any] = {
    "__builtins__": {"enumerate": enumerate, "isinstance": isinstance, "len": len, "tuple": tuple, "type": type},
    "Loop": Loop,
    "Macro": Macro,
    "UNSET": UNSET,
    "attribute": access.attribute,
    "call": methods.call,
    "call_method": methods.call_method,
    "concat": finalise.concat,
    "element": access.element,
    "emit": emit,
    "join": operators.join,
    "keywords": _keywords,
    "mapping": _mapping,
    "negative": operators.negative,
    "positive": operators.positive,
    "set_name": _set_name,
    "slice_of": access.slice_of,
    "str": str,
    "text_kept": finalise.text_kept,
    "undefined": Undefined,
    "unpack": _unpack,
    **{f"binary_{number}": run for number, run in enumerate(operators.BINARY.values())},
    **{f"compare_{name}": run for name, run in operators.COMPARE.items()},
    **{f"g_{name}": function for name, function in GLOBALS.items()},
}
"""Names of the generated code. There are no other builtins in its reach."""
