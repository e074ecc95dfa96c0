"""Checking values against JSON Schema: every problem at once, in words for whoever fills them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import SchemaError, SchemaValidator, core_schema

__all__ = ["JsonChecker", "Problem", "bound_faults", "compile_pattern", "resolve", "target_in"]

_MAX_DEPTH = 64
_MAX_STEPS = 1_000_000
_BRANCHES = frozenset({"$ref", "anyOf", "oneOf", "allOf", "not"})
"""Keywords that put several schemas in front of one value."""

Problem: TypeAlias = tuple[str, str]
"""Name of the value (dotted) and what is wrong with it."""

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping, BaseModel),
    "null": (type(None),),
}


_BOUNDS: dict[str, tuple[tuple[type, ...], Callable[[Any, Any], bool], str]] = {
    "minimum": ((int, float), lambda value, bound: value >= bound, "should be at least {}"),
    "maximum": ((int, float), lambda value, bound: value <= bound, "should be at most {}"),
    "exclusiveMinimum": ((int, float), lambda value, bound: value > bound, "should be more than {}"),
    "exclusiveMaximum": ((int, float), lambda value, bound: value < bound, "should be less than {}"),
    "multipleOf": ((int, float), lambda value, step: _is_multiple(value, step), "should be a multiple of {}"),
    "minLength": ((str,), lambda value, bound: len(value) >= bound, "should have at least {} characters"),
    "maxLength": ((str,), lambda value, bound: len(value) <= bound, "should have at most {} characters"),
    "pattern": ((str,), lambda value, pattern: compile_pattern(pattern).isinstance_python(value), "should match {!r}"),
    "minItems": ((list, tuple), lambda value, bound: len(value) >= bound, "should have at least {} items"),
    "maxItems": ((list, tuple), lambda value, bound: len(value) <= bound, "should have at most {} items"),
    "minProperties": ((Mapping,), lambda value, bound: len(value) >= bound, "should have at least {} entries"),
    "maxProperties": ((Mapping,), lambda value, bound: len(value) <= bound, "should have at most {} entries"),
}
"""Keyword -> types it applies to, its test, and the message where that fails."""


class JsonChecker:
    """Checks values against one JSON Schema; `#/...` references lead into it.

    A part of the schema that refers to others or has alternatives meets each value once, however many ways lead there,
    and a check that needs more than a fixed number of steps is a problem of its own: the time is bounded whatever the
    schema and the value are. Patterns run on an engine whose time is linear.

    Not looked at: `format`, `patternProperties`, `if`, `dependentSchemas`, and references to other documents.
    """

    __slots__ = ("_document", "_patterns")

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._patterns: dict[str, SchemaValidator] = {}

    def problems(self, value: Any) -> list[Problem]:
        """Return what is wrong with a value."""
        check = _Check(self._document, self._patterns)
        try:
            return [(path or "(value)", what) for path, what in check.find(self._document, value, 0)]
        except _Unbounded as error:
            return [("(value)", str(error))]
        except RecursionError:
            return [("(value)", "has a schema whose references and alternatives nest too deeply")]


class _Unbounded(Exception):
    """A check that was given up."""


class _Check:
    """One value on its way through a schema."""

    __slots__ = ("known", "patterns", "root", "steps")

    def __init__(self, root: Mapping[str, Any], patterns: dict[str, SchemaValidator]) -> None:
        self.root = root
        self.patterns = patterns
        self.steps = 0
        self.known: dict[tuple[int, int], tuple[Any, list[Problem]]] = {}
        """What was found for a schema and a value, with the value: its id is taken as long as it is kept."""

    def find(self, schema: Mapping[str, Any] | bool, value: Any, depth: int) -> list[Problem]:
        """Return what is wrong with a value, each with the path below it."""
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise _Unbounded(f"takes more than {_MAX_STEPS:,} steps to check: simplify the schema or shorten the value")
        if depth > _MAX_DEPTH:
            raise _Unbounded(f"is nested more than {_MAX_DEPTH} levels deep")
        if isinstance(schema, bool):
            return [] if schema else [("", "is not allowed")]
        if _BRANCHES.isdisjoint(schema):
            return self._own(schema, value, depth)
        key = (id(schema), id(value))
        known = self.known.get(key)
        if known is None:
            self.known[key] = (value, [])  # a schema that leads back to itself finds nothing more
            known = self.known[key] = (value, self._branches(schema, value, depth))
        return known[1]

    def _branches(self, schema: Mapping[str, Any], value: Any, depth: int) -> list[Problem]:
        reference = schema.get("$ref")
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            return self.find(resolve(reference, self.root), value, depth)
        for keyword, allowed in (("anyOf", len(schema.get("anyOf", ()))), ("oneOf", 1)):
            options = schema.get(keyword, ())
            fitting = sum(not self.find(option, value, depth) for option in options)
            if options and not 1 <= fitting <= allowed:
                how_many = (
                    f"{fitting} of the schemas, and only one may fit" if fitting else "none of the allowed schemas"
                )
                return [("", f"matches {how_many}")]
        found = self._own(schema, value, depth)
        for part in schema.get("allOf", ()):
            found = [*found, *self.find(part, value, depth)]
        if "not" in schema and not self.find(schema["not"], value, depth):
            found = [*found, ("", "matches what is not allowed")]
        return list(dict.fromkeys(found))

    def _own(self, schema: Mapping[str, Any], value: Any, depth: int) -> list[Problem]:
        """Return what the keywords find that look at the value itself and at what it holds."""
        expected = schema.get("type")
        names = [expected] if isinstance(expected, str) else list(expected or ())
        if names and not any(_is_json(value, name) for name in names):
            return [("", f"should be {' or '.join(names)}, got {type(value).__name__}")]
        found: list[Problem] = []
        if "enum" in schema and value not in schema["enum"]:
            found.append(("", f"should be one of {schema['enum']!r}"))
        if "const" in schema and value != schema["const"]:
            found.append(("", f"should be {schema['const']!r}"))
        for keyword, (kinds, holds, complaint) in _BOUNDS.items():
            if keyword in schema and isinstance(value, kinds) and not isinstance(value, bool):
                bound = schema[keyword]
                if not (self._matches(bound, value) if keyword == "pattern" else holds(value, bound)):
                    found.append(("", complaint.format(bound)))
        if isinstance(value, Mapping):
            found += [(name, "Field required") for name in schema.get("required", ()) if name not in value]
            named = schema.get("properties", {})
            for name, item in named.items():
                if name in value:
                    found += _below(str(name), self.find(item, value[name], depth + 1))
            others = schema.get("additionalProperties")
            if isinstance(others, Mapping):
                for name in value:
                    if name not in named:
                        found += _below(str(name), self.find(others, value[name], depth + 1))
        items = schema.get("items")
        if isinstance(items, Mapping) and isinstance(value, list | tuple):
            for index, item in enumerate(value):
                found += _below(f"[{index}]", self.find(items, item, depth + 1))
        return found

    def _matches(self, pattern: str, value: object) -> bool:
        compiled = self.patterns.get(pattern)
        if compiled is None:
            compiled = self.patterns[pattern] = compile_pattern(pattern)
        return compiled.isinstance_python(value)


def _below(step: str, problems: list[Problem]) -> list[Problem]:
    """Return problems as they are seen from above `step`."""
    return [(step + path if not path or path[0] == "[" else f"{step}.{path}", what) for path, what in problems]


def compile_pattern(pattern: str) -> SchemaValidator:
    """Return what finds a regular expression in a str, in time linear in its length.

    Raises:
        SchemaError: It is not a regular expression, or not one that always ends (look-around, back-references).
    """
    return SchemaValidator(core_schema.str_schema(pattern=pattern))


def bound_faults(schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield every bound of a schema that nothing can be compared with."""
    for keyword in _BOUNDS:
        if keyword not in schema:
            continue
        bound = schema[keyword]
        if keyword == "pattern":
            if not isinstance(bound, str):
                yield f"{where}.pattern must be a regular expression, got {bound!r}"
                continue
            try:
                compile_pattern(bound)
            except SchemaError as error:
                reason = str(error).strip().splitlines()[-1].removeprefix("error: ")
                yield (
                    f"{where}.pattern must be a regular expression, got {bound!r} ({reason}; patterns run in linear"
                    " time, without look-around and back-references)"
                )
        elif isinstance(bound, bool) or not isinstance(bound, int | float):
            yield f"{where}.{keyword} must be a number, got {bound!r}"


def _is_multiple(value: float, step: float) -> bool:
    try:
        return not step or value % step == 0
    except OverflowError:  # an int beyond every float
        return value % Fraction(step) == 0 if isinstance(value, int) else False


def _is_json(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, float) and name == "integer":
        return value.is_integer()  # JSON has one kind of number
    return isinstance(value, _JSON_TYPES.get(name, (object,)))


def resolve(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a `#/...` reference inside a schema; {} where it leads to no object."""
    found = target_in(root, reference)
    return found if isinstance(found, Mapping) else {}


def target_in(document: Mapping[str, Any], reference: object) -> Any:
    """Return what a reference leads to; None where that is nothing in this document."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    target: Any = document
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list | tuple) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        else:
            target = target.get(name) if isinstance(target, Mapping) else None
    return target
