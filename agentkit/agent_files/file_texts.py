"""Texts of an agent file that replace texts of code: descriptions of tools, and worked examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.errors import AgentDefinitionError
from agentkit_prompts.context.prompt_context import Example
from agentkit_prompts.names import nearest
from agentkit_prompts.tree.examples import ExamplesPrompt
from agentkit_prompts.tree.layers import Layers
from agentkit_tools import Tool, Toolset


def described_tools(tools: Any) -> dict[str, Tool]:
    """Return the tools of the argument `tools` of an agent by name, without the tools that each run creates."""
    return {tool.name: tool for source in _sources(tools) for tool in _fixed(source)}


def described(tools: Any, descriptions: Mapping[str, str]) -> list[Any]:
    """Return the argument `tools` of an agent with other descriptions.

    Args:
        tools: Tools, functions and toolsets.
        descriptions: Descriptions by the name of the tool.

    Raises:
        AgentDefinitionError: A tool is unknown, or each run creates it.
    """
    names = described_tools(tools)
    unknown = [name for name in descriptions if name not in names]
    if unknown:
        raise AgentDefinitionError(
            f"no tool {unknown[0]!r:.80} with a fixed description{nearest(unknown[0], names)}",
            name=unknown[0],
            value=unknown[0],
        )
    changed: list[Any] = []
    for source in _sources(tools):
        fixed = _fixed(source)
        if not fixed:
            changed.append(source)
        for tool in fixed:
            if tool.name in descriptions:
                tool = tool.with_changes(description=descriptions[tool.name])
            changed.append(tool)
    return changed


def with_examples(agent: Agent[Any, Any], examples: Sequence[Example]) -> Agent[Any, Any]:
    """Return an agent whose `ExamplesPrompt` shows examples; the prompt is added to `system` if it is missing."""
    layers = agent.chain.layers
    changed = _replaced(layers, examples)
    if changed is None:
        changed = layers.model_copy(update={"system": (*layers.system, ExamplesPrompt(examples))})
    return agent.with_changes(layers=changed)


def _replaced(layers: Layers, examples: Sequence[Example]) -> Layers | None:
    """Return layers whose first `ExamplesPrompt` shows examples; None without this prompt."""
    for path, prompt in layers.prompts():
        if isinstance(prompt, ExamplesPrompt):
            place = path.partition("[")[0]
            prompt_with_examples = prompt.model_copy(update={"examples": tuple(examples)})
            prompts = [prompt_with_examples if each is prompt else each for each in getattr(layers, place)]
            return layers.model_copy(update={place: tuple(prompts)})
    return None


def _sources(tools: Any) -> list[Any]:
    """Return the tools, functions and toolsets of an argument `tools`."""
    if isinstance(tools, list | tuple):
        return list(tools)
    return [tools]


def _fixed(source: Any) -> list[Tool]:
    """Return the tools of one entry; empty if each run creates them."""
    if isinstance(source, Tool):
        return [source]
    if isinstance(source, Toolset):
        return list(source)
    if callable(source) and not hasattr(source, "at"):
        return [Tool(source)]
    return []
