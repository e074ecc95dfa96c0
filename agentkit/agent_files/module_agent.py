"""Agents of Python modules, such as `shop.agents:support`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.agent.tenant_agent import agent_of_tenant
from agentkit.agent_files.agent_file_error import AgentFileError
from agentkit.agent_files.agent_model import (
    ERRORS,
    NEEDS_ADDRESS,
    agent_model,
    check_template_allowed,
    invalid_argument,
    named_options,
)
from agentkit.agent_files.import_path import imported
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.agent_files.yaml_lines import Problem
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
        AgentFileError: The model or the chat template is invalid, or is no model for the agent.
    """
    agent = _module_agent(path)
    if chat_template is not None and model is None:
        raise AgentDefinitionError(f"{path}: the agent of a module has its model: {NEEDS_ADDRESS}", name="model")
    if model is not None:
        agent = _with_model(path, agent, model, chat_template)
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


def _with_model(
    path: str, agent: Agent[Any, Any], model: Model | str, chat_template: GivenTemplate | None
) -> Agent[Any, Any]:
    """Return an agent with another model, which gets the template options of the previous model.

    Raises:
        AgentFileError: The model or the chat template is invalid, or is no model for the agent.
    """
    previous: Any = agent.chain.model
    # The offline model has a writer if it has a chat template.
    previous = getattr(previous, "writer", previous)
    template, session_len = chat_template, None
    policy, kwargs = getattr(previous, "control_tokens", None), getattr(previous, "template_kwargs", {})
    try:
        if chat_template is None:
            # The length is for the template of the module; a different template has a different length.
            template, session_len = getattr(previous, "chat_template", None), getattr(previous, "session_len", None)
        else:
            check_template_allowed(model)
        new_model = agent_model(model, template, session_len, NO_SETTINGS, policy, kwargs)
    except ERRORS as error:
        argument = invalid_argument(error, model, chat_template) or "model"
        options = {"chat_template": template, "session_len": session_len, "control_tokens": policy}
        options["template_kwargs"] = kwargs
        places = [f"{name} is in {path}" for name in named_options(error) if options.get(name) and name != argument]
        raise AgentFileError([Problem(argument, None, "; ".join([str(error), *places]))]) from error
    try:
        return agent.with_changes(model=new_model)
    except ERRORS as error:
        raise AgentFileError([Problem("model", None, f"{error}; the agent is in {path}")]) from error
