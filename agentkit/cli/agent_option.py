"""The agent that a command asks: that of `--agent`, or the one of the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.cli.default_agent import choose_model, default_agent, full_name, has_place_for_tools
from agentkit.cli.options import HOME, TENANT, has_memory, open_existing, open_memory, utf8
from agentkit.cli.screen import fail, note
from agentkit.models.completion.completion_model import CompletionModel
from agentkit.models.model import Model
from agentkit.models.offline.offline_model import OfflineModel
from agentkit_memory import Scope

if TYPE_CHECKING:
    from agentkit.agent_files.shared_memories import SharedMemories
    from agentkit_memory import Memory

__all__ = [
    "AgentSource",
    "AgentSources",
    "ModelName",
    "apart",
    "existing_memory",
    "loaded_agent",
    "memory_of",
    "opened_agent",
    "scope_of",
    "store_of",
]

AgentSource: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--agent",
        "-a",
        envvar="AGENTKIT_AGENT",
        metavar="FILE|MODULE:NAME",
        help="An agent file, or an agent of a Python module. It is code: name only what you trust.",
    ),
]
AgentSources: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--agent",
        "-a",
        envvar="AGENTKIT_AGENT",
        metavar="FILE|MODULE:NAME",
        help="An agent file, or an agent of a Python module. Repeatable.",
    ),
]
ModelName: TypeAlias = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME", help="Model to ask; `offline` is a stand-in without a network."),
]
_OFFLINE = "an offline stand-in answers by quoting; for a language model set OPENAI_API_KEY or OPENAI_BASE_URL"


def loaded_agent(
    source: str,
    *,
    home: Path = HOME,
    model: str | None = None,
    chat_template: str | None = None,
    model_name: str | None = None,
    memories: SharedMemories | None = None,
) -> LoadedAgent:
    """Return the agent of a file or a module; modules are looked for in the working folder too.

    Raises:
        AgentDefinitionError: It cannot be used.
    """
    from agentkit.agent_files.agent_file import is_import_path
    from agentkit.agent_files.agent_loading import AgentFileError, load_agent

    options = {"model": "--model", "chat_template": "--chat-template"}
    if chat_template is None:
        options["chat_template"] = "--model-name"
    source = utf8(source)
    # An installed script, unlike `python -m`, does not look into the working folder.
    if is_import_path(source) and "" not in sys.path:
        sys.path.insert(0, "")
    given = None
    if home != HOME:
        given = home
    named = None
    if model is not None:
        named = full_name(utf8(model))
    template = chat_template or model_name
    try:
        return load_agent(source, home=given, model=named, chat_template=template, memories=memories)
    except AgentFileError as error:
        # A problem without a line is of an option, and is named as the user gave it.
        problems = [one if one.line else replace(one, file=options.get(one.file, one.file)) for one in error.problems]
        raise AgentFileError(problems, error.files) from error


@contextmanager
def opened_agent(
    source: str | None,
    *,
    home: Path,
    model: str | None = None,
    embedder: str | None = None,
    makes: bool = True,
    tells: bool = False,
    chat_template: str | None = None,
    model_name: str | None = None,
) -> Iterator[LoadedAgent]:
    """Lend the agent of `--agent`, or that of the command line, with its memory.

    Args:
        source: What `--agent` names.
        home: The folder of the memory.
        model: What `--model` names.
        embedder: What `--embedder` names.
        makes: Whether a missing memory is made; otherwise the agent of the command line goes without.
        tells: Whether to say which model answers.
        chat_template: What `--chat-template` names.
        model_name: What `--model-name` names.
    """
    if source is not None:
        loaded = loaded_agent(source, home=home, model=model, chat_template=chat_template, model_name=model_name)
        try:
            if tells:
                note(f"agent {loaded.name}, model {loaded.agent.chain.model.name}")
            yield loaded
        finally:
            loaded.close()
        return
    chosen: Model
    # Showing a prompt needs no model that can answer.
    if makes or model is not None:
        chosen = choose_model(model, chat_template, model_name)
    else:
        template = chat_template or model_name
        chosen = OfflineModel()
        if template is not None:
            chosen = CompletionModel(template, template)
    if not makes and not has_memory(home):
        note(f"nothing was ingested into {home} yet")
        _note_tools(chosen)
        yield LoadedAgent(default_agent(chosen), "")
        return
    with open_memory(home, embedder=embedder) as memory:
        if tells and isinstance(chosen, OfflineModel):
            note(_OFFLINE)
        elif tells:
            note(f"model {chosen.name}")
        _note_tools(chosen)
        yield LoadedAgent(default_agent(chosen, memory), "", memory=memory)


def _note_tools(model: Model) -> None:
    if not has_place_for_tools(model):
        note("the chat template has no place for tools: the tools are in its prompt, and called in its text")


@contextmanager
def memory_of(source: str, home: Path = HOME, embedder: str | None = None) -> Iterator[Memory]:
    """Lend the memory of the agent of `--agent`; one that has none ends the command."""
    if embedder is not None:
        fail("--embedder is for the memory of the command line: an agent names its own", code=2)
    loaded = loaded_agent(source, home=home)
    try:
        if loaded.memory is None:
            fail(f"the agent {loaded.name} has no memory")
        yield loaded.memory.within(loaded.memory.scope)
    finally:
        loaded.close()


@contextmanager
def existing_memory(
    agent: str | None, home: Path, tenant: str | None, user: str | None, embedder: str | None = None
) -> Iterator[Memory]:
    """Lend the memory of the agent of `--agent`, or that of the folder, which must be there."""
    opened = open_existing(home, embedder=embedder) if agent is None else memory_of(agent, home, embedder)
    with opened as memory:
        yield memory.within(scope_of(memory, tenant, user))


def scope_of(memory: Memory | None, tenant: str | None = None, user: str | None = None) -> Scope:
    """Return the scope a command works in: that of the memory, or of another tenant that is named, for the user."""
    scope = Scope(TENANT) if memory is None else memory.scope
    if tenant is not None and utf8(tenant) != scope.tenant:
        scope = Scope(utf8(tenant))
    return scope.narrow(user=utf8(user or ""))


@contextmanager
def store_of(loaded: LoadedAgent, home: Path, tenant: str | None = None, user: str | None = None) -> Iterator[Memory]:
    """Lend the store that conversations with an agent are kept in: its memory, or that of the folder.

    An agent without memory keeps them there as its own: no other agent of the folder recalls them.
    """
    scope = scope_of(loaded.memory, tenant, user)
    if loaded.memory is not None:
        yield loaded.memory.within(scope)
        return
    with open_memory(home, scope.narrow(agent=loaded.name)) as memory, suppress(GeneratorExit):
        yield memory


def apart(
    loaded: LoadedAgent, tenant: str | None = None, user: str | None = None, *, name: str | None = None
) -> list[str]:
    """Return names of conversations that the agent had before it had a memory: they stay its own.

    Those of one name, or the first page of all.
    """
    if loaded.memory is None or (scope := scope_of(loaded.memory, tenant, user)).agent:
        return []
    own = loaded.memory.within(scope.narrow(agent=loaded.name))
    return [one.name for one in own.sessions(name=name)]
