"""Rules of providers for tools, as data, each with its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentkit_prompts.schemas.property_names import OF_ANTHROPIC, OF_GEMINI

_COMMON_KEYWORDS = "type properties required items anyOf description"
_OPENAI_FORMATS = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ProviderRules:
    """Rules of one provider for the description and parameters of a tool."""

    provider: str
    source: str
    """Address of the documentation of the rules."""
    keywords: frozenset[str] | None = None
    """Supported keywords of JSON Schema; None for all keywords of a valid schema."""
    formats: frozenset[str] = frozenset()
    """Supported values of `format`, if keywords are listed."""
    property_name_pattern: str = ""
    """Regular expression of accepted property names; "" for any name."""
    max_description: int | None = None
    """Maximum length of the description of a tool, in characters. In this and other limits, None is no limit."""
    largest_min_items: int | None = None
    """Maximum value of `minItems`."""
    references: Literal["recursive", "flat", "none"] = "recursive"
    """`recursive` if a schema can refer to itself, `flat` if only to other schemas, `none` if `$ref` is not
    supported."""
    is_closed: bool = False
    """True if objects must name all their properties, and `additionalProperties` must be false."""
    all_required: bool = False
    """True if every property must be listed as required; an optional property accepts null."""
    lists_types: bool = True
    """True if `type` may be a list; otherwise `nullable` replaces null, and `anyOf` replaces other types."""
    only_text_enums: bool = False
    """True if enums may contain only text."""
    max_properties: int | None = None
    """Maximum number of properties in all objects."""
    max_levels: int | None = None
    """Maximum levels of nested objects."""
    max_enum_values: int | None = None
    """Maximum number of values in all enums."""
    max_name_chars: int | None = None
    """Maximum total length, in characters, of the names of properties and definitions and the values of enums and
    constants."""
    max_unions: int | None = None
    """Maximum number of parameters with several types."""


OPENAI = ProviderRules(
    provider="OpenAI",
    source="platform.openai.com, function calling; learn.microsoft.com, Azure OpenAI: descriptions of 1,024 characters",
    max_description=1_024,
)
OPENAI_STRICT = ProviderRules(
    provider="OpenAI",
    source="platform.openai.com, structured outputs: supported schemas",
    keywords=frozenset(
        f"{_COMMON_KEYWORDS} additionalProperties enum const $ref $defs pattern format multipleOf minimum maximum"
        " exclusiveMinimum exclusiveMaximum minItems maxItems".split()
    ),
    formats=_OPENAI_FORMATS,
    is_closed=True,
    all_required=True,
    max_properties=5_000,
    max_levels=10,
    max_enum_values=1_000,
    max_name_chars=120_000,
)
ANTHROPIC = ProviderRules(
    provider="Anthropic",
    source="platform.claude.com, tool use: input_schema is JSON Schema 2020-12 of an object",
    property_name_pattern=OF_ANTHROPIC,
)
ANTHROPIC_STRICT = ProviderRules(
    provider="Anthropic",
    source="platform.claude.com, structured outputs: JSON Schema limitations",
    keywords=frozenset(
        f"{_COMMON_KEYWORDS} additionalProperties enum const $ref $defs pattern format minItems".split()
    ),
    formats=_OPENAI_FORMATS | {"uri"},
    property_name_pattern=OF_ANTHROPIC,
    largest_min_items=1,
    references="flat",
    is_closed=True,
    max_unions=16,
)
GEMINI = ProviderRules(
    provider="Gemini",
    source="ai.google.dev, function calling: Schema; cloud.google.com, FunctionDeclaration: names of parameters",
    keywords=frozenset(
        f"{_COMMON_KEYWORDS} enum format nullable minItems maxItems minLength maxLength minProperties maxProperties"
        " minimum maximum pattern".split()
    ),
    formats=frozenset(("date-time", "enum", "float", "double", "int32", "int64")),
    property_name_pattern=OF_GEMINI,
    references="none",
    lists_types=False,
    only_text_enums=True,
)
