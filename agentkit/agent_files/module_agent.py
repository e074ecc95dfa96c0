"""Agents of Python modules, such as `shop.agents:support`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.agent.tenant_agent import agent_of_tenant
from agentkit.agent_files.agent_model import NEEDS_ADDRESS, agent_model, check_template_allowed
from agentkit.agent_files.import_path import imported
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.errors import AgentDefinitionError
from agentkit.models.model import Model
from agentkit.models.settings import NO_SETTINGS
from agentkit_prompts.chat_templates.template_finder import GivenTemplate


def loaded_module_agent(
    path: str, model: Model | str | None, chat_template: GivenTemplate | None, tenant: str | None
) -> LoadedAgent:
    """Return the agent at an import path; see `load_agent`.

    Raises:
        AgentDefinitionError: The path leads to no agent, or the chat template has no model.
    """
    agent = _module_agent(path)
    if chat_template is not None and model is None:
        raise AgentDefinitionError(f"{path}: the agent of a module has its model: {NEEDS_ADDRESS}", name="model")
    if model is not None:
        agent = _with_model(agent, model, chat_template)
    if tenant is not None:
        agent = agent_of_tenant(agent, tenant)
    if agent.memory is None:
        return LoadedAgent(agent, path)
    from agentkit_memory import Memory

    # Commands can open only a `Memory`, not a custom memory of the developer.
    if isinstance(agent.memory, Memory):
        return LoadedAgent(agent, path, memory=agent.memory)
    return LoadedAgent(agent, path)


def _module_agent(path: str) -> Agent[Any, Any]:
    value = imported(path, Path())
    if not isinstance(value, Agent) and callable(value):
        try:
            value = value()
        except Exception as error:
            raise AgentDefinitionError(f"{path}: {type(error).__name__}: {error}", name=str(path)) from error
    if not isinstance(value, Agent):
        raise AgentDefinitionError(
            f"{path}: expected an Agent, or a function without arguments that returns it, got {type(value).__name__}",
            name=str(path),
            value=type(value).__name__,
        )
    return value


def _with_model(agent: Agent[Any, Any], model: Model | str, chat_template: GivenTemplate | None) -> Agent[Any, Any]:
    """Return an agent with another model, which gets the template options of the previous model."""
    previous: Any = agent.chain.model
    # The offline model has a writer if it has a chat template.
    previous = getattr(previous, "writer", previous)
    template, session_len = chat_template, None
    if chat_template is None:
        # The length is for the template of the module; a different template has a different length.
        template, session_len = getattr(previous, "chat_template", None), getattr(previous, "session_len", None)
    else:
        check_template_allowed(model)
    policy, kwargs = getattr(previous, "control_tokens", None), getattr(previous, "template_kwargs", {})
    return agent.with_changes(model=agent_model(model, template, session_len, NO_SETTINGS, policy, kwargs))
