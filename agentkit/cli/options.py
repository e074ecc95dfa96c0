"""Shared options of commands, and functions that read their values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from agentkit.cli.screen import complain, fail, note

if TYPE_CHECKING:
    from agentkit_memory import Memory, Scope, StoredSession

HOME = Path(".agentkit")
TENANT = "local"
"""Default tenant of the data that the command line stores and reads."""


def not_empty(name: str | None) -> str | None:
    """Refuse an empty name: an unset variable of a shell must not widen a command from one user to all users."""
    if name == "":
        raise typer.BadParameter("expected a name, got an empty text; omit the option for no name")
    return name


Home: TypeAlias = Annotated[
    Path, typer.Option(envvar="AGENTKIT_HOME", metavar="DIR", help="Folder of conversations and documents.")
]
Output: TypeAlias = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Output file; stdout by default.")
]
SessionName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--session", "-s", metavar="NAME", help="Name of a new conversation, or of a conversation to continue."
    ),
]
TenantName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="Tenant whose documents and conversations are used; `local` by default.",
        show_default=False,
        callback=not_empty,
    ),
]
UserName: TypeAlias = Annotated[
    str | None,
    typer.Option("--user", metavar="NAME", help="User whose memory and conversations are used.", callback=not_empty),
]
EmbedderName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--embedder",
        envvar="AGENTKIT_EMBEDDER",
        metavar="KIND:MODEL",
        help="Model of dense retrieval, such as fastembed:BAAI/bge-small-en-v1.5. A store alone loads no model.",
    ),
]
ChatTemplateName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--chat-template",
        metavar="FILE|NAME",
        help="Chat template of a local model: a name (see `agentkit templates`), the name of a model, a file or a "
        "folder. The model receives raw completion requests.",
    ),
]
TemplateModel: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model-name",
        metavar="NAME",
        help="Model whose registered chat template is used; also the model, if --model names none.",
    ),
]
Kwargs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--kwarg", "-k", metavar="NAME=VALUE", help="An additional kwarg, JSON or text. Repeatable."),
]
SharedNames: TypeAlias = Annotated[
    list[str] | None, typer.Option("--shared", metavar="NAME", help="Shared documents to search too. Repeatable.")
]
LocaleName: TypeAlias = Annotated[
    str | None, typer.Option("--locale", metavar="TAG", help="Language of the prompts, such as `de`.")
]
Tags: TypeAlias = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TEXT", help="Tag that is stored with the run. Repeatable.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def utf8(argument: str) -> str:
    """Return an argument as valid text; bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(argument).decode("utf-8", "replace")


def has_memory(home: Path) -> bool:
    """True if the folder contains a memory; exits with an error if the folder is not readable."""
    # `Path.exists` hides a permission error from Python 3.14 on.
    try:
        (home / "memory.db").stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        fail(f"{home}: permission denied")
    return True


def memory_with(memory: Memory, name: str) -> Memory:
    """Return the memory with a conversation: a separate scope if only a server stored a conversation of this name.

    A server opens the conversations of requests without a user in separate scopes.
    """
    from agentkit_memory.scope import check_name

    check_name("session id", name)
    if memory.scope.user or memory.sessions(name=name) or not memory.sessions(name=name, separate=True):
        return memory
    return memory.within(memory.scope.narrow(session=name))


def text_session(memory: Memory, name: str) -> StoredSession:
    """Open a conversation; exit with an error if the conversation refers to files."""
    # The command line stores only text. A store of another author could name any file of this machine, which would be
    # sent to the model.
    from agentkit_prompts.context.parts import Media

    session = memory_with(memory, name).session(name)
    for number, message in enumerate(session.conversation, 1):
        for part in message.parts:
            if isinstance(part, Media) and isinstance(part.source, Path):
                complain(
                    f"conversation {name!r}, message {number}: the command line does not open files that a store "
                    f"names, such as {str(part.source)!r}; continue this conversation from a program"
                )
                raise typer.Exit(1)
    return session


def open_existing(home: Path, scope: Scope | None = None, embedder: str | None = None) -> Memory:
    """Open an existing memory; exit with an error if it is missing."""
    if not has_memory(home):
        fail(f"{home}: the folder has no memory; `agentkit ingest` creates a memory, --home DIR names another folder")
    return open_memory(home, scope, embedder)


def open_memory(home: Path, scope: Scope | None = None, embedder: str | None = None) -> Memory:
    """Open a memory, with dense retrieval only if the user names the embedder."""
    # A store of another author, such as in a checkout, must not choose a model that is loaded.
    from agentkit_memory import EmbedderError, Memory, Scope
    from agentkit_memory.embedders.store_embedders import embedder_named

    scope = scope or Scope(TENANT)
    if embedder:
        model = embedder_named(utf8(embedder))
        try:
            return Memory(home, scope=scope, embedder=model)
        except EmbedderError as error:
            note(f"dense retrieval is off: {error}")
    memory = Memory(home, scope=scope)
    if memory.model and not embedder:
        note(
            f"dense retrieval is off: {home} was embedded by the model {memory.model!r}, which is loaded only when "
            "you name it with --embedder or AGENTKIT_EMBEDDER"
        )
    return memory
