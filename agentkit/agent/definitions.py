"""Definitions of agents, from the arguments of `Agent` or from a definition with changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentkit.errors import AgentDefinitionError
from agentkit.models.settings import NO_SETTINGS, ModelSettings, checked_settings
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.agent_tools import AgentTools, context_toolsets
from agentkit.run.parts.agent_version import AgentVersion
from agentkit.run.parts.chain import LAYERS_EXPECTED, Chain
from agentkit.run.parts.limits import Limits, checked_limits
from agentkit.run.parts.run_context import with_default_prompts
from agentkit_prompts.errors import brief, kind_of
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import TokenCounter
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.leaves import AnyPrompt

if TYPE_CHECKING:
    from agentkit.models.model import Model
    from agentkit.run.parts.compaction import Compaction
    from agentkit.run.parts.recaller import RecallOptions, RecallSource
    from agentkit_prompts.prompters.prompter import Prompter
    from agentkit_tools.toolsets.context_toolset import ContextToolset

_WITHOUT_CHAIN = frozenset(("tools", "limits", "recall", "guards"))
"""Changes that do not affect the chain."""


def make_definition(
    model: Model | Chain[Any] | str,
    instructions: AnyPrompt,
    *,
    layers: Layers | Prompter | None,
    settings: ModelSettings | Mapping[str, Any],
    tools: Any,
    memory: RecallSource | None,
    recall: RecallOptions | None,
    compaction: Compaction | None,
    output: Any,
    budget: int | Budget | None,
    counter: TokenCounter | None,
    limits: Limits,
    guards: Any,
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
            f"name: expected text, as the name of the agent in journals, got {brief(name, 40)}", name="name"
        )
    default_settings = checked_settings(settings)
    if isinstance(model, Chain):
        chain, system_prompt = model, None
        if instructions or layers is not None or output is not str or budget is not None or counter is not None:
            raise AgentDefinitionError(
                "a Chain has layers, an output type, a budget and a counter: pass these options to the Chain",
                name="model",
                value="Chain",
            )
    else:
        system_prompt = _checked_prompts(instructions, layers)
        prompts: Any = layers
        if system_prompt is not None:
            prompts = with_default_prompts(system_prompt, memory, compaction, context_toolsets(tools))
        chain = Chain(model, prompts, output=output, budget=budget, counter=counter)
    # Applied as a change, as in `with_changes`, because fields that the agent does not set keep the defaults of the
    # model.
    definition = _checked_definition(name, chain, tools, limits, memory, recall, compaction, system_prompt, NO_SETTINGS)
    if guards != ():
        definition = _with_guards(definition, guards)
    if default_settings == NO_SETTINGS:
        return definition
    return changed_definition(definition, {"settings": default_settings})


def _checked_prompts(instructions: object, layers: object) -> AnyPrompt | None:
    """Return the instructions of an agent; None if it has layers.

    Raises:
        AgentDefinitionError: Both are set, or an argument has the type that the other argument expects.
    """
    if layers is None:
        if isinstance(instructions, AnyPrompt):
            return instructions
        raise AgentDefinitionError(
            f"instructions: expected text or a prompt, got {kind_of(instructions)}; "
            "Layers and prompters are passed as layers=...",
            name="instructions",
            value=type(instructions).__name__,
        )
    if not isinstance(instructions, str) or instructions:
        raise AgentDefinitionError(
            "instructions and layers are both set: put the instructions into the layers, such as "
            "Layers(instructions, before_input=...)",
            name="layers",
        )
    if isinstance(layers, AnyPrompt):
        raise AgentDefinitionError(
            f"layers: {LAYERS_EXPECTED}, got {kind_of(layers)}; a text or a prompt is passed as instructions=...",
            name="layers",
            value=type(layers).__name__,
        )
    return None


def _check_shown(toolset: ContextToolset, layers: Layers) -> None:
    """Refuse layers that do not show the part of the context that a toolset adds, such as skills.

    Raises:
        AgentDefinitionError: The error contains the prompts that show it.
    """
    missing = set(toolset.shows)
    for _, prompt in layers.walk():
        # None: a class with its own code can read any name.
        missing -= toolset.shows if prompt.reads is None else prompt.reads
    if missing:
        raise AgentDefinitionError(
            f"the agent has {toolset.noun}, but no prompt of the layers shows {' and '.join(sorted(missing))}: "
            f"{toolset.advice}",
            name="layers",
        )


def changed_definition(definition: AgentDefinition[Any], changes: Mapping[str, Any]) -> AgentDefinition[Any]:
    """Return a definition with changes; see `Agent.with_changes`. Raises the errors of `make_definition`."""
    chain, instructions = definition.chain, definition.instructions
    memory = changes.get("memory", definition.memory)
    compaction = changes.get("compaction", definition.compaction)
    tools = changes.get("tools", definition.tools.argument)
    toolsets, earlier_toolsets = context_toolsets(tools), definition.tools.context_toolsets
    if not changes.keys() <= _WITHOUT_CHAIN or [*map(type, toolsets)] != [*map(type, earlier_toolsets)]:
        layers: Any = chain.prompter or chain.layers
        if "layers" in changes or "instructions" in changes:
            layers = changes.get("layers")
            instructions = _checked_prompts(changes.get("instructions", ""), layers)
        # Built again: the prompts depend on memory, compaction and toolsets.
        if instructions is not None:
            layers = with_default_prompts(instructions, memory, compaction, toolsets)
        chain = Chain(
            _changed_model(definition, changes),
            layers,
            output=changes.get("output", chain.output),
            counter=chain.counter,
            budget=changes.get("budget", chain.budget),
            redact=chain.redact,
        )
    recall = definition.recall
    # A change that removes the memory also removes the recall options of the agent: only recall= in `changes` is an
    # error.
    if memory is None:
        recall = None
    changed = _checked_definition(
        definition.name,
        chain,
        tools,
        changes.get("limits", definition.limits),
        memory,
        changes.get("recall", recall),
        compaction,
        instructions,
        _changed_settings(definition, changes),
    )._replace(deps=definition.deps, guards=definition.guards)
    if "guards" in changes:
        return _with_guards(changed, changes["guards"])
    return changed


def _with_guards(definition: AgentDefinition[Any], guards: object) -> AgentDefinition[Any]:
    # Imported here: most agents have no guards.
    from agentkit.run.parts.run_guards import checked_guards

    return definition._replace(guards=checked_guards(guards))


def with_deps(definition: AgentDefinition[Any], deps: Any) -> AgentDefinition[Any]:
    """Return a definition with the default deps of its runs; see `Agent.with_deps`.

    Raises:
        AgentDefinitionError: The function cannot be called with one argument.
        DepsMismatch: Tools require another type than the type of the object.
    """
    from agentkit.run.parts.deps_source import DepsSource

    source = DepsSource(deps)
    source.check(definition.tools.tools.values())
    return definition._replace(deps=source)


def _changed_model(definition: AgentDefinition[Any], changes: Mapping[str, Any]) -> Model:
    """Return the model of a changed agent. If the model changes, the settings of the agent apply to the new model."""
    from agentkit.models.model_names import changed_model

    if "model" in changes and definition.settings != NO_SETTINGS:
        changes = {**changes, "settings": _changed_settings(definition, changes)}
    return changed_model(definition.chain.model, changes)


def _changed_settings(definition: AgentDefinition[Any], changes: Mapping[str, Any]) -> ModelSettings:
    """Return the settings of a changed agent."""
    if "settings" not in changes:
        return definition.settings
    return definition.settings.merged(checked_settings(changes["settings"]))


def _checked_definition(
    name: str,
    chain: Chain[Any],
    tools: Any,
    limits: Limits,
    memory: RecallSource | None,
    recall: RecallOptions | None,
    compaction: Compaction | None,
    instructions: AnyPrompt | None,
    settings: ModelSettings,
) -> AgentDefinition[Any]:
    """Check that the parts of a definition fit together, and return the definition."""
    if memory is not None:
        from agentkit.run.parts import recaller

        recaller.check_memory(memory, chain.layers)
        if recall is None:
            recall = recaller.RecallOptions()
        recaller.shown_options(recall, chain.layers)
    elif recall is not None:
        raise AgentDefinitionError("recall= has an effect only with memory=: pass a memory too", name="recall")
    if compaction is not None:
        from agentkit.run.parts.compaction import check_compaction

        check_compaction(compaction, chain)
    prompter = chain.prompter
    if prompter is not None and (prompter.tools or prompter.history):
        raise AgentDefinitionError(
            "the prompter has tools or history: pass tools to the agent, and earlier turns to a session",
            name="layers",
        )
    agent_tools = AgentTools(tools, chain.answer)
    for toolset in agent_tools.context_toolsets:
        _check_shown(toolset, chain.layers)
        # The names of tools that each run creates are unknown here.
        if not agent_tools.is_per_run:
            toolset.check_tools(agent_tools.tools)
    return AgentDefinition(
        name,
        chain,
        agent_tools,
        checked_limits(limits),
        memory,
        recall,
        compaction,
        instructions,
        settings,
        AgentVersion(chain, agent_tools),
    )
