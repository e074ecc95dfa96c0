"""The validator of JSON Schema, draft 2020-12: the library jsonschema-rs, with limits on time and without network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote

from jsonschema_rs import (
    Draft202012Validator,
    FancyRegexOptions,
    ReferencingError,
    ValidationError,
    ValidationErrorKind,
)

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.errors import brief
from agentkit_prompts.invalid_values import place_of, shown_name
from agentkit_prompts.limits import MAX_LISTED, MAX_PROBLEMS, MAX_REASON_CHARS
from agentkit_prompts.schemas.evaluation_cost import EvaluationCost, TooExpensiveError
from agentkit_prompts.schemas.pattern_size import CHARS_OF_CLASS, pattern_size
from agentkit_prompts.schemas.plain_data import NotPlainError, plain_data
from agentkit_prompts.schemas.references import reference_cycle, target_in
from agentkit_prompts.schemas.schema_problems import InvalidSchemaError, InvalidValueError, SchemaProblem, problems_of

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
MAX_SCHEMA_VALUES = 200_000
"""Maximum values in a schema, at all levels."""
_MAX_PATTERNS = 100_000
"""Maximum total size of the patterns of a schema, see `pattern_size`. At this size, compiling takes a second."""
_MAX_LISTED_VALUES = 2_000
"""Maximum values in a schema, and characters of its first error, for which all errors of the schema are listed."""
_MAX_BACKTRACKS = 1_000
"""Maximum backtracks of a pattern with look-around or back-references. Other patterns run in linear time."""


class JsonValidator:
    """Validator of values by one schema. References to other documents are never fetched.

    `format`, `contentEncoding`, `contentMediaType` and `contentSchema` are annotations and are not checked.

    Args:
        document: The schema.
        is_lenient: True to ignore patterns that cannot be compiled, because other engines can support them.

    Raises:
        InvalidSchemaError: The document is not a schema or is too large, or a reference has no target.
    """

    def __init__(self, document: Mapping[str, Any], *, is_lenient: bool = False) -> None:
        try:
            schema = plain_data(document, MAX_SCHEMA_VALUES)
        except NotPlainError as error:
            raise InvalidSchemaError([(place_of(error.path), str(error))]) from None
        # Schemas of other drafts are read as draft 2020-12, because the documents of other dialects are not fetched.
        schema.pop("$schema", None)
        _settle_references(schema)
        if is_lenient:
            _drop_patterns(schema)
            _drop_added_items(schema)
        else:
            _check_pattern_sizes(schema)
        self._document = schema
        self._validator = _compiled(schema)
        if not is_lenient and (cycle := reference_cycle(schema)):
            # The library would accept every value by such a schema.
            steps = " -> ".join([shown_name(step) for step in cycle[:MAX_LISTED]])
            raise InvalidSchemaError([("", f"its references form a cycle, so it describes no value: {steps}")])
        self._cost = EvaluationCost(schema)

    def check(self, value: Any) -> None:
        """Check a value of JSON types; `plain_data` converts other values.

        Raises:
            InvalidValueError: The value does not match the schema, or the check would take too long.
        """
        if problems := self.problems(value):
            raise InvalidValueError(problems)

    def problems(self, value: Any) -> list[SchemaProblem]:
        """Return all problems of a value of JSON types; `plain_data` converts other values."""
        try:
            cost = self._cost.of(value)
        except TooExpensiveError as error:
            return [SchemaProblem((), "limit", str(error))]
        if self._validator.is_valid(value):
            return []
        if not cost.allows_one_error:
            return [SchemaProblem((), "anyOf", "does not match the schema, and has too many problems to list")]
        if cost.allows_all_errors:
            return list(self._listed(value))
        # The first error is cheap, even if each of many errors would contain a copy of a large schema or value.
        return [*self._first(value), SchemaProblem((), "limit", "may have more problems, too many to list")]

    def problems_of_object(self, value: Any) -> list[SchemaProblem]:
        """Return all problems of a value that may contain models, dataclasses and other objects; see `plain_data`."""
        try:
            data = plain_data(value)
        except NotPlainError as error:
            return [SchemaProblem(error.path, "limit", str(error), error.value)]
        return self.problems(data)

    def _listed(self, value: Any) -> Iterator[SchemaProblem]:
        errors = iter(self._validator.iter_errors(value))
        yield from islice(problems_of(errors, self._document), MAX_PROBLEMS)
        more = sum(1 for _ in errors)
        if more:
            yield SchemaProblem((), "limit", f"has {more:,} more problems")

    def _first(self, value: Any) -> Iterator[SchemaProblem]:
        try:
            self._validator.validate(value)
        except ValidationError as error:
            yield from problems_of([error], self._document)


def _refuse(uri: str) -> Any:
    raise LookupError(uri)


def _settle_references(schema: dict[str, Any]) -> None:
    """Write all references in one spelling, with escapes for characters that addresses cannot contain.

    Some generators write `#/$defs/Page[Item]`, which is not an address. One spelling, because the library compiles a
    target again for each spelling of its references.

    Raises:
        InvalidSchemaError: The target of a reference is missing.
    """
    nodes = [node for node in iter_nodes(schema) if isinstance(node, dict)]
    # Below a schema with an id, a pointer is relative to that schema; only the library resolves such pointers.
    has_ids = any("$id" in node for node in nodes)
    for node in nodes:
        reference = node.get("$ref")
        if isinstance(reference, str):
            if not has_ids and reference.startswith("#/") and target_in(schema, reference) is None:
                raise InvalidSchemaError([("", f"a reference leads nowhere: {reference[:MAX_REASON_CHARS]}")])
            node["$ref"] = quote(unquote(reference), safe=_ADDRESS)


_ADDRESS = "#/?:@!$&'()*+,;=~-._"
"""Characters, besides letters and digits, that are not escaped in an address."""


def _options() -> FancyRegexOptions:
    return FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS)


def _compiled(schema: dict[str, Any]) -> Draft202012Validator:
    try:
        return Draft202012Validator(schema, retriever=_refuse, pattern_options=_options())
    except ValidationError as error:
        raise InvalidSchemaError(_schema_problems(schema, error)) from None
    except (ReferencingError, ValueError) as error:
        raise InvalidSchemaError([("", str(error).partition("\n")[0][:MAX_REASON_CHARS])]) from None


def _schema_problems(schema: dict[str, Any], error: ValidationError) -> list[tuple[str, str]]:
    """Return all problems of a schema that the library refused with `error`."""
    if isinstance(error.kind, ValidationErrorKind.Referencing):
        return [("", _reference_problem(error.message))]
    listed = [*problems_of([error], {})]
    # The library creates all errors at once, and each error contains a part of the schema: a large schema takes long.
    if sum(1 for _ in iter_nodes(schema)) < _MAX_LISTED_VALUES and len(error.message) < _MAX_LISTED_VALUES:
        listed = [*islice(problems_of(_draft_validator().iter_errors(schema), {}), MAX_LISTED)] or listed
    problems = {place_of(problem.path): _of_schema(problem) for problem in listed}
    return list(problems.items())


def _reference_problem(message: str) -> str:
    document = re.match(r"Resource '([^']+)'", message)
    if document is not None:
        return f"a reference leads to another document, which is not fetched: {document[1][:MAX_REASON_CHARS]}"
    return f"a reference leads nowhere: {message[:MAX_REASON_CHARS]}"


def _of_schema(problem: SchemaProblem) -> str:
    if problem.keyword == "format":
        return f"expected a regular expression, got {brief(problem.value)}"
    return f"{problem.expected}, got {brief(problem.value)}"


@cache
def _draft_validator() -> Draft202012Validator:
    """Return the validator that checks schemas by the schema of draft 2020-12."""
    return Draft202012Validator({"$ref": _DRAFT}, retriever=_refuse, validate_formats=True)


def _patterns(schema: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the patterns of a schema, each after the object that contains it, as the value of `pattern` or as a key."""
    for node in iter_nodes(schema):
        if isinstance(node, dict):
            if isinstance(pattern := node.get("pattern"), str):
                yield node, pattern
            if isinstance(named := node.get("patternProperties"), dict):
                yield from [(named, name) for name in named]


def _check_pattern_sizes(schema: dict[str, Any]) -> None:
    size = sum(pattern_size(pattern) for _, pattern in _patterns(schema))
    if size > _MAX_PATTERNS:
        problem = (
            f"its patterns have {size:,} characters in all, with repetitions written out and {CHARS_OF_CLASS} for a"
            rf" class such as \w; at most {_MAX_PATTERNS:,} are allowed: repeat less, or use maxLength"
        )
        raise InvalidSchemaError([("", problem)])


def _drop_patterns(schema: dict[str, Any]) -> None:
    """Delete the patterns that cannot be compiled, and all patterns after the limit of their total size."""
    # The loop iterates over a list, because it deletes keys of the objects from which the patterns are read.
    remaining = _MAX_PATTERNS
    for node, pattern in list(_patterns(schema)):
        remaining -= pattern_size(pattern)
        if remaining >= 0 and _is_regular(pattern):
            continue
        if node.get("pattern") == pattern:
            del node["pattern"]
        else:
            del node[pattern]


def _drop_added_items(schema: dict[str, Any]) -> None:
    """Delete `items: {}`, which is added for providers, and would evaluate all items for `unevaluatedItems`."""
    for node in list(iter_nodes(schema)):
        if isinstance(node, dict) and node.get("items") == {} and "type" in node:
            del node["items"]


def _is_regular(pattern: str) -> bool:
    try:
        Draft202012Validator({"pattern": pattern}, pattern_options=_options())
    except ValidationError:
        return False
    return True
