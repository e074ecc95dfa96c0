"""Defaults that `enum` or `type` excludes through references and alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from agentkit_prompts.schemas.json_values import is_json, kind_of_json
from agentkit_prompts.schemas.keywords import iter_schemas, rewritten
from agentkit_prompts.schemas.references import target_in
from agentkit_tools.schemas.schema_values import KEYWORDS_OF_KIND, WRAPPED, is_one_of, kinds_of

_Verdict: TypeAlias = Literal["accepted", "excluded", "unknown"]
"""Verdict on a value: `excluded` if only `enum` and `type` exclude the value."""

_MAX_STEPS = 20_000
"""Maximum number of visits of schemas for one document: many defaults can refer to the same long list."""
_MAX_LEVELS = 32
"""Maximum references and alternatives in each other, because they can form a cycle."""
_MOVED = (*WRAPPED, "type", "enum")
_UNDECIDED = ("const", "not", "if", "dependentSchemas", "$dynamicRef")
_UNCHECKED = frozenset(("format", "contentEncoding", "contentMediaType", "contentSchema"))


def with_wrapped_defaults(document: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that accepts each default that only `enum` or `type` excludes in references and alternatives.

    A model reads the default and sends it. Other keywords still apply to the default.
    """
    # The arguments as a whole are an object, so their default is useless.
    if _has_wrapped_default(document):
        document = {keyword: value for keyword, value in document.items() if keyword != "default"}
    check = _DefaultCheck(document)
    # Few schemas exclude their defaults: most are read, but not copied.
    if any(map(check.is_excluded, iter_schemas(document))):
        document = rewritten(document, check.with_default)
    return document


def _has_wrapped_default(schema: Mapping[str, Any]) -> bool:
    return "default" in schema and any(keyword in schema for keyword in WRAPPED)


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {keyword: value for keyword, value in schema.items() if keyword in _MOVED}


class _DefaultCheck:
    """Check of the defaults of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._steps = 0

    def with_default(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema, with its default as an alternative if `enum` or `type` excludes the default."""
        if not self.is_excluded(schema):
            return schema
        wrapped, default = _wrapped(schema), schema["default"]
        options = [wrapped]
        if wrapped.keys() == {"anyOf"}:
            options = wrapped["anyOf"]
        rest = {keyword: value for keyword, value in schema.items() if keyword not in _MOVED}
        return {**rest, "anyOf": [*options, {"type": kind_of_json(default), "enum": [default]}]}

    def is_excluded(self, schema: Mapping[str, Any]) -> bool:
        """True if only `enum` or `type`, in references and alternatives, excludes the default of a schema."""
        if not _has_wrapped_default(schema):
            return False
        return self._verdict(_wrapped(schema), schema["default"], 0) == "excluded"

    def _verdict(self, schema: Any, value: Any, level: int) -> _Verdict:
        self._steps += 1
        if self._steps > _MAX_STEPS or level > _MAX_LEVELS:
            return "unknown"
        if not isinstance(schema, Mapping):
            return "unknown"
        if any(keyword in schema for keyword in (*_UNDECIDED, *_keywords_for(value))):
            return "unknown"
        verdicts: list[_Verdict] = [_own_verdict(schema, value)]
        if "$ref" in schema:
            verdicts.append(self._verdict(target_in(self._document, schema["$ref"]), value, level + 1))
        for part in schema.get("allOf", ()):
            verdicts.append(self._verdict(part, value, level + 1))
        for name in ("anyOf", "oneOf"):
            if name in schema:
                verdicts.append(self._alternatives(schema[name], value, level))
        return _strictest(verdicts)

    def _alternatives(self, options: list[Any], value: Any, level: int) -> _Verdict:
        verdicts: list[_Verdict] = []
        for option in options:
            verdict = self._verdict(option, value, level + 1)
            if verdict == "accepted":
                return verdict
            verdicts.append(verdict)
        return _strictest(verdicts)


def _strictest(verdicts: Sequence[_Verdict]) -> _Verdict:
    if "unknown" in verdicts:
        return "unknown"
    if "excluded" in verdicts:
        return "excluded"
    return "accepted"


def _own_verdict(schema: Mapping[str, Any], value: Any) -> _Verdict:
    if "enum" in schema and not is_one_of(value, schema["enum"]):
        return "excluded"
    if "type" in schema and not any(is_json(value, kind) for kind in kinds_of(schema["type"])):
        return "excluded"
    return "accepted"


def _keywords_for(value: Any) -> list[str]:
    """Return the keywords that apply to a value because of its type."""
    kind = kind_of_json(value)
    if kind == "integer":
        kind = "number"
    return [keyword for keyword in KEYWORDS_OF_KIND.get(kind, ()) if keyword not in _UNCHECKED]
