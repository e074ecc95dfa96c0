"""Makes the definition of an agent from the arguments of `Agent`, and from another definition with changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentkit.errors import AgentDefinitionError
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.agent_tools import AgentTools
from agentkit.run.parts.chain import Chain
from agentkit.run.parts.limits import Limits, checked_limits
from agentkit.run.parts.run_context import placed
from agentkit_prompts.errors import brief
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import TokenCounter
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.leaves import AnyPrompt

if TYPE_CHECKING:
    from agentkit.models.model import Model
    from agentkit.run.parts.compaction import Compaction
    from agentkit.run.parts.recaller import RecallOptions, RecallSource
    from agentkit_prompts.prompters.prompter import Prompter

__all__ = ["changed_definition", "make_definition"]

_NOT_OF_THE_CHAIN = frozenset(("tools", "limits", "recall"))
"""Changes that need no other chain."""


def make_definition(
    model: Model | Chain[Any] | str,
    layers: Layers | Prompter | AnyPrompt,
    *,
    tools: Any,
    memory: RecallSource | None,
    recall: RecallOptions | None,
    compaction: Compaction | None,
    output: Any,
    budget: int | Budget | None,
    counter: TokenCounter | None,
    limits: Limits,
    name: str,
) -> AgentDefinition[Any]:
    """Return the definition of an agent; see `Agent`.

    Raises:
        ToolDefinitionError: Two tools have the same name, or a tool cannot be offered to a model.
        PromptError: A prompt can never render.
        AgentDefinitionError: The arguments do not fit together, or one of them is invalid.
    """
    if not isinstance(name, str):
        raise AgentDefinitionError(
            f"name: expected text, which journals call the agent by, got {brief(name, 40)}", name="name"
        )
    text = None
    if isinstance(model, Chain):
        chain = model
        if layers or output is not str or budget is not None or counter is not None:
            raise AgentDefinitionError(
                "a Chain brings its layers, output type, budget and counter: give them to the Chain instead",
                name="model",
                value="Chain",
            )
    else:
        if isinstance(model, str):
            from agentkit.models.model_names import model as named

            model = named(model)
        if isinstance(layers, AnyPrompt):
            text = layers
        chain = Chain(model, placed(layers, memory, compaction), output=output, budget=budget, counter=counter)
    return _defined(name, chain, tools, limits, memory, recall, compaction, text)


def changed_definition(definition: AgentDefinition[Any], changes: Mapping[str, Any]) -> AgentDefinition[Any]:
    """Return a definition with other parts; see `Agent.with_changes`. Raises as `make_definition` does."""
    chain, text = definition.chain, definition.text
    memory = changes.get("memory", definition.memory)
    compaction = changes.get("compaction", definition.compaction)
    if not changes.keys() <= _NOT_OF_THE_CHAIN:
        from agentkit.models.model_names import changed_model

        layers: Any = chain.prompter or chain.layers
        if "layers" in changes:
            layers = changes["layers"]
            text = layers if isinstance(layers, AnyPrompt) else None
        if text is not None:
            layers = placed(text, memory, compaction)
        chain = Chain(
            changed_model(chain.model, changes),
            layers,
            output=changes.get("output", chain.output),
            counter=chain.counter,
            budget=changes.get("budget", chain.budget),
            redact=chain.redact,
        )
    return _defined(
        definition.name,
        chain,
        changes.get("tools", definition.tools.given),
        changes.get("limits", definition.limits),
        memory,
        changes.get("recall", None if memory is None else definition.recall),
        compaction,
        text,
    )


def _defined(
    name: str,
    chain: Chain[Any],
    tools: Any,
    limits: Limits,
    memory: RecallSource | None,
    recall: RecallOptions | None,
    compaction: Compaction | None,
    text: AnyPrompt | None,
) -> AgentDefinition[Any]:
    """Return a definition whose parts fit together."""
    if memory is not None:
        from agentkit.run.parts import recaller

        recaller.check_memory(memory, chain.layers)
        recall = recaller.RecallOptions() if recall is None else recall
        recaller.shown_options(recall, chain.layers)
    elif recall is not None:
        raise AgentDefinitionError(
            "recall= has an effect only with memory=: give the agent a memory too", name="recall"
        )
    if compaction is not None:
        from agentkit.run.parts.compaction import check_compaction

        check_compaction(compaction, chain)
    prompter = chain.prompter
    if prompter is not None and (prompter.tools or prompter.history):
        raise AgentDefinitionError(
            "an agent has its own tools and history: give it the tools, and earlier turns to a session, "
            "instead of the prompter",
            name="layers",
        )
    made = AgentTools(tools, chain.answer)
    return AgentDefinition(name, chain, made, checked_limits(limits), memory, recall, compaction, text)
