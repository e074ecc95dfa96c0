"""Sizes of a tool that a provider limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from agentkit_prompts.schemas.keywords import iter_schemas, listed_values
from agentkit_prompts.schemas.provider_rules import ProviderRules


def over_limits(schema: Mapping[str, Any], rules: ProviderRules) -> Iterator[str]:
    """Yield a problem for each size of a fitted schema that exceeds the limit of the provider."""
    sizes: Counter[str] = Counter()
    for node in iter_schemas(schema):
        properties, listed = node.get("properties", {}), listed_values(node) or []
        texts = [*properties, *node.get("$defs", {}), *[value for value in listed if isinstance(value, str)]]
        sizes["properties"] += len(properties)
        sizes["values in enums"] += len(listed)
        sizes["characters in names and enums"] += sum(map(len, texts))
        sizes["parameters of several types"] += "anyOf" in node or isinstance(node.get("type"), list)
    for noun, maximum in (
        ("properties", rules.max_properties),
        ("values in enums", rules.max_enum_values),
        ("characters in names and enums", rules.max_name_chars),
        ("parameters of several types", rules.max_unions),
    ):
        if maximum is not None and sizes[noun] > maximum:
            yield f"parameters has {sizes[noun]:,} {noun}, {maximum:,} are allowed"
