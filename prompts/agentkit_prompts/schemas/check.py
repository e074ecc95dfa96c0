"""Checking values against JSON Schema: every problem at once, in words for whoever fills them in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any, TypeAlias

from pydantic_core import SchemaError, SchemaValidator, core_schema

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.errors import brief
from agentkit_prompts.schemas.json_values import is_equal, is_json, is_multiple, key_of
from agentkit_prompts.schemas.pattern_size import CHARS_OF_CLASS, pattern_size

__all__ = [
    "JsonChecker",
    "Problem",
    "bound_faults",
    "depth_faults",
    "pattern_faults",
    "resolve",
    "shown_name",
    "target_in",
]

_MAX_DEPTH = 64
_MAX_LEVELS = 200
"""Objects and lists inside of each other in a schema, those of defaults and of keywords that nobody knows included."""
_MAX_STEPS = 1_000_000
_MAX_PATTERNS = 200_000
"""Characters of all patterns of a schema, see `pattern_size`: some of them take a second to compile."""
_MAX_SHOWN = 200
"""Characters of a name, or of a value of the schema, in a problem."""
_MAX_PROBLEMS = 1_000
_STEPS_OF_PROBLEM = 5
_CHARS_PER_STEP = 16
_CHARS_PER_ALTERNATIVE = 100
_BRANCHES = frozenset({"$ref", "anyOf", "oneOf", "allOf", "not", "if", "dependentSchemas"})
"""Keywords that put several schemas in front of one value."""

_NOTHING: Mapping[str, Any] = {"not": {}}
"""The schema false, as an object."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")

Problem: TypeAlias = tuple[str, str]
"""Name of the value (dotted) and what is wrong with it."""

_BOUNDS: dict[str, tuple[tuple[type, ...], Callable[[Any, Any], bool], str]] = {
    "minimum": ((int, float), lambda value, bound: value >= bound, "should be at least {}"),
    "maximum": ((int, float), lambda value, bound: value <= bound, "should be at most {}"),
    "exclusiveMinimum": ((int, float), lambda value, bound: value > bound, "should be more than {}"),
    "exclusiveMaximum": ((int, float), lambda value, bound: value < bound, "should be less than {}"),
    "multipleOf": ((int, float), lambda value, step: is_multiple(value, step), "should be a multiple of {}"),
    "minLength": ((str,), lambda value, bound: len(value) >= bound, "should have at least {} characters"),
    "maxLength": ((str,), lambda value, bound: len(value) <= bound, "should have at most {} characters"),
    "pattern": ((str,), lambda value, pattern: compile_pattern(pattern).isinstance_python(value), "should match {}"),
    "minItems": ((list, tuple), lambda value, bound: len(value) >= bound, "should have at least {} items"),
    "maxItems": ((list, tuple), lambda value, bound: len(value) <= bound, "should have at most {} items"),
    "minProperties": ((Mapping,), lambda value, bound: len(value) >= bound, "should have at least {} entries"),
    "maxProperties": ((Mapping,), lambda value, bound: len(value) <= bound, "should have at most {} entries"),
}
"""Keyword -> types it applies to, its test, and the message where that fails."""


class JsonChecker:
    """Checks values against one JSON Schema; `#/...` references lead into it.

    A part of the schema that refers to others or has alternatives meets each value once, however many ways lead there,
    and a check that needs more than a fixed number of steps is a problem of its own: the time and what is written are
    bounded whatever the schema and the value are. Patterns run on an engine whose time is linear.

    Not looked at: `format`, `unevaluatedProperties`, `unevaluatedItems`, and references to anchors or other documents.
    """

    __slots__ = ("_document", "_patterns")

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._patterns: dict[str, tuple[SchemaValidator, int]] = {}

    def problems(self, value: Any) -> list[Problem]:
        """Return what is wrong with a value."""
        check = _Check(self._document, self._patterns)
        try:
            found = check.find(self._document, value, 0)
            shown = [(path or "(value)", what) for path, what in found[:_MAX_PROBLEMS]]
            more = len(found) - len(shown)
            return [*shown, ("(value)", f"has {more:,} problems more")] if more else shown
        except _Unbounded as error:
            return [("(value)", str(error))]
        except RecursionError:
            return [("(value)", "has a schema whose references and alternatives nest too deeply")]


class _Unbounded(Exception):
    """A check that was given up."""


class _Check:
    """One value on its way through a schema."""

    __slots__ = ("allowed", "known", "patterns", "root", "steps")

    def __init__(self, root: Mapping[str, Any], patterns: dict[str, tuple[SchemaValidator, int]]) -> None:
        self.root = root
        self.patterns = patterns
        self.steps = 0
        self.known: dict[tuple[int, int], tuple[Any, list[Problem]]] = {}
        """What was found for a schema and a value, with the value: its id is taken as long as it is kept."""
        self.allowed: dict[tuple[int, str], _Allowed] = {}
        """What every enum and const allows, by the id of its schema and the keyword."""

    def take(self, steps: int) -> None:
        self.steps += steps
        if self.steps > _MAX_STEPS:
            raise _Unbounded(f"takes more than {_MAX_STEPS:,} steps to check: simplify the schema or shorten the value")

    def find(self, schema: Mapping[str, Any] | bool, value: Any, depth: int) -> list[Problem]:
        """Return what is wrong with a value, each with the path below it."""
        self.take(1)
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
        for keyword, allowed in (("anyOf", len(schema.get("anyOf", ()))), ("oneOf", 1)):
            options = schema.get(keyword, ())
            fitting = sum(not self.find(option, value, depth) for option in options)
            if options and not 1 <= fitting <= allowed:
                how_many = (
                    f"{fitting} of the schemas, and only one may fit" if fitting else "none of the allowed schemas"
                )
                return [("", f"matches {how_many}")]
        found = self._own(schema, value, depth)
        for part in self._parts(schema, value, depth):
            found = [*found, *self.find(part, value, depth)]
            self.take(len(found))
        if "not" in schema and not self.find(schema["not"], value, depth):
            found = [*found, ("", "matches what is not allowed")]
        return list(dict.fromkeys(found))

    def _parts(self, schema: Mapping[str, Any], value: Any, depth: int) -> Iterator[Mapping[str, Any] | bool]:
        """Yield the other schemas that the same value has to follow."""
        reference = schema.get("$ref")
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            yield resolve(reference, self.root)
        yield from schema.get("allOf", ())
        if "if" in schema:
            yield schema.get("else" if self.find(schema["if"], value, depth) else "then", True)
        if isinstance(value, Mapping):
            for name, held in schema.get("dependentSchemas", {}).items():
                self.take(1)
                if name in value:
                    yield held

    def _own(self, schema: Mapping[str, Any], value: Any, depth: int) -> list[Problem]:
        """Return what the keywords find that look at the value itself and at what it holds."""
        expected = schema.get("type")
        names = [expected] if isinstance(expected, str) else list(expected or ())
        self.take(len(names))
        if names and not any(is_json(value, name) for name in names):
            return self._problem(f"should be {shown_name(' or '.join(names))}, got {type(value).__name__}")
        found: list[Problem] = []
        for keyword in ("enum", "const"):
            if keyword in schema and (allowed := self._allowed(schema, keyword)).excludes(value, self.take):
                found += self._problem(allowed.complaint)
        for keyword, (kinds, holds, complaint) in _BOUNDS.items():
            if keyword in schema and isinstance(value, kinds) and not isinstance(value, bool):
                bound = schema[keyword]
                if not (self._matches(bound, value) if keyword == "pattern" else holds(value, bound)):
                    found += self._problem(complaint.format(brief(bound, _MAX_SHOWN)))
        if isinstance(value, Mapping):
            found += self._of_object(schema, value, depth)
        if isinstance(value, list | tuple):
            found += self._of_array(schema, value, depth)
        return found

    def _of_array(self, schema: Mapping[str, Any], value: Sequence[Any], depth: int) -> list[Problem]:
        """Return what is wrong with the items of an array."""
        heads, items = schema.get("prefixItems", ()), schema.get("items", True)
        found: list[Problem] = []
        for index, item in enumerate(value if items is not True else value[: len(heads)]):
            found += self._below(f"[{index}]", heads[index] if index < len(heads) else items, item, depth)
        if "contains" in schema:
            least, most = schema.get("minContains", 1), schema.get("maxContains", inf)
            fitting = sum(not self.find(schema["contains"], item, depth + 1) for item in value)
            if not least <= fitting <= most:
                found += self._problem(f"has {fitting:,} of the items it should contain")
        if schema.get("uniqueItems") is True and self._repeats(value):
            found += self._problem("should have items that all differ")
        return found

    def _repeats(self, items: Sequence[Any]) -> bool:
        self.take(len(items))
        keys = [key for item in items if (key := key_of(item)) is not None]
        others: list[tuple[int, Any]] = []
        for item in items if len(keys) < len(items) else ():
            if key_of(item) is None:
                size = 1 + _size(item)
                self.take(size + sum([min(size, its_size) for its_size, _ in others]))
                if any(is_equal(item, other) for _, other in others):
                    return True
                others.append((size, item))
        return len(set(keys)) < len(keys)

    def _of_object(self, schema: Mapping[str, Any], value: Mapping[str, Any], depth: int) -> list[Problem]:
        """Return what is wrong with the entries of an object."""
        required = [*schema.get("required", ())]
        for name, needed in schema.get("dependentRequired", {}).items():
            self.take(1)
            required += needed if name in value else ()
        self.take(len(required) // _CHARS_PER_STEP)
        found: list[Problem] = []
        for name in required:
            if name not in value:
                found += self._problem("Field required", shown_name(name))
        named = schema.get("properties", {})
        fewer, others = (named, value) if len(named) <= len(value) else (value, named)
        for name in fewer:
            if name in others:
                found += self._below(str(name), named[name], value[name], depth)
        patterns, more = schema.get("patternProperties", {}), schema.get("additionalProperties", True)
        for name in value if patterns or more is not True else ():
            self.take(len(patterns))
            inner = [held for pattern, held in patterns.items() if self._matches(pattern, str(name))]
            for each in inner or ([] if name in named else [more]):
                found += self._below(str(name), each, value[name], depth)
        for name in value if "propertyNames" in schema else ():
            for _, what in self.find(schema["propertyNames"], name, depth + 1):
                found += self._problem(f"has a name that {what}", shown_name(str(name)))
        return found

    def _problem(self, what: str, path: str = "") -> list[Problem]:
        self.take(_STEPS_OF_PROBLEM)
        return [(path, what)]

    def _below(self, step: str, schema: Mapping[str, Any] | bool, value: Any, depth: int) -> list[Problem]:
        """Return the problems of a value that is inside of another one, as they are seen from there."""
        problems = self.find(schema, value, depth + 1)
        if not problems:
            return problems
        step = shown_name(step)
        self.take(sum([1 + (len(step) + len(path)) // _CHARS_PER_STEP for path, _ in problems]))
        return [(step + path if not path or path[0] == "[" else f"{step}.{path}", what) for path, what in problems]

    def _allowed(self, schema: Mapping[str, Any], keyword: str) -> _Allowed:
        key = (id(schema), keyword)
        if key not in self.allowed:
            self.allowed[key] = _Allowed(schema[keyword], is_one=keyword == "const")
            self.take(self.allowed[key].size // _CHARS_PER_STEP)
        return self.allowed[key]

    def _matches(self, pattern: str, value: Any) -> bool:
        if pattern not in self.patterns:
            self.patterns[pattern] = compile_pattern(pattern), pattern_size(pattern)
        compiled, size = self.patterns[pattern]
        self.take((1 + size // _CHARS_PER_ALTERNATIVE) * (len(value) // _CHARS_PER_STEP))
        return compiled.isinstance_python(value)


class _Allowed:
    """The values that an enum or a const allows: text, numbers, booleans and null are looked up in a set."""

    __slots__ = ("complaint", "keys", "members", "size")

    def __init__(self, allowed: Any, *, is_one: bool) -> None:
        self.members: Sequence[Any] = [allowed] if is_one else allowed
        self.keys = {key_of(member) for member in self.members}
        self.size = 1 + _size(allowed)
        self.complaint = f"should be {'' if is_one else 'one of '}{brief(allowed, _MAX_SHOWN)}"

    def excludes(self, value: Any, take: Callable[[int], None]) -> bool:
        key = key_of(value)
        if key is not None:
            return key not in self.keys
        take(self.size)
        return not any(is_equal(value, member) for member in self.members)


def _size(value: Any) -> int:
    """Return the number of values inside a value."""
    return sum(1 for _ in iter_nodes(value)) - 1


def shown_name(name: str) -> str:
    """Return a name as problems show it: in full, except for very long ones."""
    return name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."


def depth_faults(document: Any, where: str) -> Iterator[str]:
    """Yield a fault where a schema, or data in it, nests too deeply, or holds itself."""
    level: list[Any] = [document]
    for _ in range(_MAX_LEVELS + 1):
        below = [inner for node in level for inner in (node.values() if isinstance(node, Mapping) else node)]
        level = [*{id(node): node for node in below if isinstance(node, Mapping | list | tuple)}.values()]
    if level:
        yield f"{where}: objects and lists in it nest deeper than {_MAX_LEVELS} levels"


def pattern_faults(document: Any, where: str) -> Iterator[str]:
    """Yield a fault where compiling all patterns of a schema would take long."""
    patterns: list[Any] = []
    for node in iter_nodes(document):
        if isinstance(node, Mapping):
            named = node.get("patternProperties")
            patterns += [node.get("pattern"), *(named if isinstance(named, Mapping) else ())]
    size = sum(pattern_size(pattern) for pattern in patterns if isinstance(pattern, str))
    if size > _MAX_PATTERNS:
        yield (
            f"{where}: its patterns have {size:,} characters in all, with what they repeat written out and"
            rf" {CHARS_OF_CLASS} for a class such as \w; patterns run in linear time, and at most {_MAX_PATTERNS:,} are"
            " allowed: repeat less, or use maxLength"
        )


def compile_pattern(pattern: str) -> SchemaValidator:
    """Return what finds a regular expression in a str, in time linear in its length.

    Raises:
        SchemaError: It is not a regular expression, or not one that always ends (look-around, back-references).
    """
    return SchemaValidator(core_schema.str_schema(pattern=pattern))


def bound_faults(schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield every bound of a schema that nothing can be compared with."""
    for pattern in schema.get("patternProperties", ()):
        yield from _pattern_fault(pattern, f"{where}.patternProperties")
    for keyword in (*_BOUNDS, "minContains", "maxContains"):
        if keyword not in schema:
            continue
        bound = schema[keyword]
        if keyword == "pattern":
            yield from _pattern_fault(bound, f"{where}.pattern")
        elif isinstance(bound, bool) or not isinstance(bound, int | float):
            yield f"{where}.{keyword} must be a number, got {brief(bound)}"
        elif keyword == "multipleOf" and isinstance(bound, float) and not isfinite(bound):
            yield f"{where}.{keyword} must be a finite number, got {bound}"


def _pattern_fault(pattern: object, where: str) -> Iterator[str]:
    if not isinstance(pattern, str):
        yield f"{where} must be a regular expression, got {brief(pattern)}"
        return
    try:
        compile_pattern(pattern)
    except SchemaError as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("error: ")
        yield (
            f"{where} must be a regular expression, got {brief(pattern)} ({reason[:_MAX_SHOWN]};"
            " patterns run in linear time, without look-around and back-references)"
        )


def resolve(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a `#/...` reference inside a schema; {} where it leads to no schema."""
    found = target_in(root, reference)
    return found if isinstance(found, Mapping) else _NOTHING if found is False else {}


def target_in(document: Mapping[str, Any], reference: object) -> Any:
    """Return what a reference leads to; None where that is nothing in this document."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    target: Any = document
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list | tuple):
            target = target[int(name)] if _INDEX.fullmatch(name) and int(name) < len(target) else None
        else:
            target = target.get(name) if isinstance(target, Mapping) else None
    return target
