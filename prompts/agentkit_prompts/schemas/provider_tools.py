"""Conversion of tools to the form of each provider. Parts that the rules of a provider reject are rewritten, shortened
with a warning, or omitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.frozen import FrozenDict, freeze
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.errors import ToolFormWarning, shortened
from agentkit_prompts.schemas.keywords import iter_schemas, rewritten
from agentkit_prompts.schemas.pattern_size import is_common_pattern
from agentkit_prompts.schemas.property_names import with_wire_names
from agentkit_prompts.schemas.provider_rules import ANTHROPIC, ANTHROPIC_STRICT, GEMINI, OPENAI, ProviderRules

_ROOT_ALTERNATIVES = ("allOf", "anyOf", "oneOf", "enum", "not", "const", "if", "$ref", "nullable")


def openai_form(tool: ToolSpec, is_official: bool = True) -> Mapping[str, Any]:
    """Return an entry of `tools` of a chat-completions request.

    Args:
        tool: The tool; sent as strict if it is strict.
        is_official: True for OpenAI, False for other servers with its protocol.
    """
    if tool.native is not None:
        return tool.native
    description = _cut(tool, OPENAI) if is_official else tool.description
    function: dict[str, Any] = {"name": tool.name, "description": description, "parameters": _object(tool.parameters)}
    if tool.strict:
        function["strict"] = True
    return FrozenDict(type="function", function=FrozenDict(function))


def anthropic_form(tool: ToolSpec) -> Mapping[str, Any]:
    """Return an entry of `tools` of an Anthropic messages request; refused names of properties are replaced.

    A strict tool is sent as strict if its parameters fit the subset that Anthropic enforces; otherwise the caller gets
    a warning.
    """
    if tool.native is not None:
        return tool.native
    spec: dict[str, Any] = {"name": tool.name}
    if tool.description:
        spec["description"] = _cut(tool, ANTHROPIC)
    spec["input_schema"] = _without_patterns(with_wire_names(_object(tool.parameters), ANTHROPIC.property_name_pattern))
    if tool.strict:
        from agentkit_prompts.schemas.provider_schema import fitted

        parameters, problems = fitted(tool.parameters, ANTHROPIC_STRICT)
        if problems:
            reason = f"tool {tool.name} is not strict for {ANTHROPIC.provider}: {'; '.join(problems)}"
            warn(reason, ToolFormWarning)
        else:
            spec |= {"input_schema": parameters, "strict": True}
    return _frozen(spec)


def gemini_form(tool: ToolSpec) -> Mapping[str, Any]:
    """Return a function declaration for Gemini; it has no `parameters` if the tool has none.

    Refused names of properties are replaced, references are resolved, and rules that the `Schema` of Gemini cannot
    express are omitted.
    """
    if tool.native is not None:
        return tool.native
    from agentkit_prompts.schemas.provider_schema import fitted

    spec: dict[str, Any] = {"name": tool.name, "description": _cut(tool, GEMINI)}
    parameters, _ = fitted(tool.parameters, GEMINI)
    # Gemini refuses an object without properties.
    if parameters.get("properties"):
        spec["parameters"] = parameters
    return _frozen(spec)


def gemini_chat_form(tool: ToolSpec) -> Mapping[str, Any]:
    """Return an entry of `tools` of a chat-completions request to Gemini, which applies its own rules."""
    if tool.native is not None:
        return tool.native
    return FrozenDict(type="function", function=gemini_form(tool))


def _object(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parameters as an object schema without alternatives at the root; the same object if they have none."""
    is_plain = parameters.get("type") == "object" and "properties" in parameters
    if is_plain and not any(key in parameters for key in _ROOT_ALTERNATIVES):
        return parameters
    from agentkit_prompts.schemas.flat_root import flat_root

    return _frozen(flat_root(parameters))


def _without_patterns(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without patterns that some servers refuse; the same object without such patterns."""
    if not any(_has_uncommon_pattern(node) for node in iter_schemas(schema)):
        return schema
    common: Mapping[str, Any] = rewritten(schema, _without_pattern)
    return common


def _without_pattern(node: dict[str, Any]) -> dict[str, Any]:
    if _has_uncommon_pattern(node):
        del node["pattern"]
    return node


def _has_uncommon_pattern(node: Mapping[str, Any]) -> bool:
    pattern = node.get("pattern")
    return isinstance(pattern, str) and not is_common_pattern(pattern)


def _cut(tool: ToolSpec, rules: ProviderRules) -> str:
    text, limit = tool.description, rules.max_description
    if limit is None or len(text) <= limit:
        return text
    warn(
        f"tool {tool.name}: its description has {len(text):,} characters, {rules.provider} accepts {limit:,}: the rest"
        " is cut. Shorten it",
        ToolFormWarning,
    )
    return shortened(text, limit)


def _frozen(value: Mapping[str, Any]) -> FrozenDict:
    frozen = freeze(value)
    assert isinstance(frozen, FrozenDict)
    return frozen
