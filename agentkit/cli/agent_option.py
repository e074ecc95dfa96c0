"""The agent of a command: the agent of `--agent`, or the default agent of the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from agentkit.cli.options import HOME, TENANT, has_memory, open_existing, open_memory, utf8
from agentkit.cli.screen import fail, note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentkit.agent_files.loaded_agent import LoadedAgent
    from agentkit.agent_files.shared_memories import SharedMemories
    from agentkit.agent_files.yaml_lines import Problem
    from agentkit.models.model import Model
    from agentkit_memory import Memory, Scope

AgentSource: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--agent",
        "-a",
        envvar="AGENTKIT_AGENT",
        metavar="FILE|MODULE:NAME",
        help="An agent file, or an agent of a Python module. Both run code: name only trusted files.",
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
    typer.Option("--model", "-m", metavar="NAME", help="Model of the agent; `offline` is a model without a network."),
]
_OFFLINE = "an offline model answers by quoting; for a language model set OPENAI_API_KEY or OPENAI_BASE_URL"


def loaded_agent(
    source: str,
    *,
    home: Path = HOME,
    model: str | None = None,
    chat_template: str | None = None,
    model_name: str | None = None,
    tenant: str | None = None,
    memories: SharedMemories | None = None,
) -> LoadedAgent:
    """Return the agent of a file or a module. Modules may be in the working directory.

    Raises:
        AgentDefinitionError: The file or module is missing or invalid.
    """
    from agentkit.agent_files.agent_file_error import AgentFileError
    from agentkit.agent_files.agent_loading import load_agent
    from agentkit.cli.default_agent import full_name

    source = utf8(source)
    # Python does not import from the working folder for an installed script, as it does for `python -m`. The tools of
    # an agent file can be functions of such modules too.
    if "" not in sys.path:
        sys.path.insert(0, "")
    # The default folder does not override the folder of an agent file.
    folder = None
    if home != HOME:
        folder = home
    full_model_name = None
    if model is not None:
        full_model_name = full_name(utf8(model))
    template = chat_template or model_name
    try:
        return load_agent(
            source,
            home=folder,
            model=full_model_name,
            chat_template=template,
            tenant=tenant and utf8(tenant),
            memories=memories,
        )
    except AgentFileError as error:
        options = {"model": "--model", "chat_template": "--chat-template"}
        if chat_template is None:
            options["chat_template"] = "--model-name"
        problems = [_with_option(problem, options) for problem in error.problems]
        raise AgentFileError(problems, error.files) from error


def _with_option(problem: Problem, options: Mapping[str, str]) -> Problem:
    """Return a problem of an argument of `load_agent` with the name of its option; other problems unchanged."""
    if problem.line:
        return problem
    return replace(problem, file=options.get(problem.file, problem.file))


@contextmanager
def opened_agent(
    source: str | None,
    *,
    home: Path,
    model: str | None = None,
    embedder: str | None = None,
    create_memory: bool = True,
    verbose: bool = False,
    chat_template: str | None = None,
    model_name: str | None = None,
    shared: Sequence[str] | None = None,
    tenant: str | None = None,
) -> Iterator[LoadedAgent]:
    """Yield the agent of `--agent`, or the default agent, with its memory.

    Args:
        source: The value of `--agent`.
        home: The folder of the memory.
        model: The value of `--model`.
        embedder: The value of `--embedder`.
        create_memory: True to create a missing memory; if False and it is missing, the default agent has no memory.
        verbose: True to print the model, and the name of the agent of `--agent`.
        chat_template: The value of `--chat-template`.
        model_name: The value of `--model-name`.
        shared: The values of `--shared`.
        tenant: The value of `--tenant`.
    """
    from agentkit.agent_files.loaded_agent import LoadedAgent
    from agentkit.cli.default_agent import choose_model, default_agent

    if source is not None:
        loaded = loaded_agent(
            source, home=home, model=model, chat_template=chat_template, model_name=model_name, tenant=tenant
        )
        try:
            if verbose:
                note(f"agent {loaded.name}, {_model_text(loaded.agent.chain.model)}")
            yield _reading_shared(loaded, shared)
        finally:
            loaded.close()
        return
    # Commands that only show prompts need no real model.
    if create_memory or model is not None:
        default_model = choose_model(model, chat_template, model_name)
    else:
        default_model = _display_model(chat_template or model_name)
    if not create_memory and not has_memory(home):
        note(f"nothing was ingested into {home} yet")
        _note_tools(default_model)
        yield _reading_shared(LoadedAgent(default_agent(default_model), ""), shared)
        return
    with open_memory(home, scope_of(None, tenant), embedder=embedder) as memory:
        if shared:
            memory = with_shared(memory, shared)
        if verbose:
            _note_model(default_model)
        _note_tools(default_model)
        yield LoadedAgent(default_agent(default_model, memory), "", memory=memory)


def _reading_shared(loaded: LoadedAgent, shared: Sequence[str] | None) -> LoadedAgent:
    """Return an agent that also reads the shared documents of `--shared`; exit with an error without a memory."""
    if not shared:
        return loaded
    if loaded.memory is None:
        fail(f"--shared: the agent {loaded.name} has no memory, so that it reads no documents", code=2)
    memory = with_shared(loaded.memory, shared)
    return replace(loaded, agent=loaded.agent.with_changes(memory=memory), memory=memory)


def with_shared(memory: Memory, shared: Sequence[str]) -> Memory:
    """Return a memory that also reads the shared documents of `--shared`."""
    return memory.within(memory.scope, shared=[*memory.shared, *map(utf8, shared)])


def _note_model(model: Model) -> None:
    """Print the model, or a note that it is the offline model."""
    from agentkit.models.offline.offline_model import OfflineModel

    if isinstance(model, OfflineModel):
        note(_OFFLINE)
    else:
        note(_model_text(model))


def _model_text(model: Model) -> str:
    """Return the name of a model, and the chat template if the model receives raw completions."""
    from agentkit.cli.default_agent import template_name
    from agentkit.models.abilities import model_path
    from agentkit.models.completion.completion_model import CompletionModel

    writer = model_path(model)[-1]
    if isinstance(writer, CompletionModel):
        return f"model {model.name}, raw completions with the chat template {template_name(writer)}"
    return f"model {model.name}"


def _display_model(template: str | None) -> Model:
    """Return a model that writes prompts and needs no key."""
    from agentkit.models.completion.completion_model import CompletionModel
    from agentkit.models.offline.offline_model import OfflineModel

    if template is not None:
        return CompletionModel(template, template)
    return OfflineModel()


def _note_tools(model: Model) -> None:
    from agentkit.cli.default_agent import has_place_for_tools

    if not has_place_for_tools(model):
        note("the chat template has no place for tools: the system prompt describes them, and they are called in text")


@contextmanager
def memory_of(source: str, home: Path = HOME, embedder: str | None = None) -> Iterator[Memory]:
    """Yield the memory of the agent of `--agent`.

    The command exits with an error if the agent has no memory, or if `embedder` is passed: an agent sets its embedder.
    """
    if embedder is not None:
        fail("--embedder is only valid without --agent: an agent defines its embedder", code=2)
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
    """Yield the memory of the agent of `--agent`, or the existing memory of the folder."""
    with ExitStack() as stack:
        if agent is None:
            memory = stack.enter_context(open_existing(home, embedder=embedder))
        else:
            memory = stack.enter_context(memory_of(agent, home, embedder))
        yield memory.within(scope_of(memory, tenant, user))


def scope_of(memory: Memory | None, tenant: str | None = None, user: str | None = None) -> Scope:
    """Return the scope of a command: the scope of the memory, or the scope of `tenant`, narrowed to `user`."""
    from agentkit_memory import Scope

    scope = Scope(TENANT)
    if memory is not None:
        scope = memory.scope
    if tenant is not None and utf8(tenant) != scope.tenant:
        scope = Scope(utf8(tenant))
    return scope.narrow(user=utf8(user or ""))


@contextmanager
def conversation_memory(
    loaded: LoadedAgent, home: Path, tenant: str | None = None, user: str | None = None
) -> Iterator[Memory]:
    """Yield the store of the conversations with an agent: its memory, or the memory of the folder.

    Conversations of an agent without memory are in the scope of the agent, so that no other agent of the folder recalls
    them.
    """
    scope = scope_of(loaded.memory, tenant, user)
    if loaded.memory is not None:
        yield loaded.memory.within(scope)
        return
    with open_memory(home, scope.narrow(agent=loaded.name)) as memory, suppress(GeneratorExit):
        yield memory


def earlier_sessions(
    loaded: LoadedAgent, tenant: str | None = None, user: str | None = None, *, name: str | None = None
) -> list[str]:
    """Return names of conversations that were stored in the scope of the agent before the agent had a memory.

    With `name`, only the conversation with this name; otherwise the first page of conversations.
    """
    if loaded.memory is None:
        return []
    scope = scope_of(loaded.memory, tenant, user)
    if scope.agent:
        return []
    memory = loaded.memory.within(scope.narrow(agent=loaded.name))
    return [session.name for session in memory.sessions(name=name)]
