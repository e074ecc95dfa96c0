"""Options that several commands take, and how their values are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from agentkit.cli.screen import complain, fail, note
from agentkit_memory import EmbedderError, Scope

if TYPE_CHECKING:
    from agentkit_memory import Memory, StoredSession

__all__ = [
    "HOME",
    "TENANT",
    "AsJson",
    "ChatTemplateName",
    "EmbedderName",
    "Home",
    "Kwargs",
    "SessionName",
    "TemplateModel",
    "TenantName",
    "UserName",
    "has_memory",
    "open_existing",
    "open_memory",
    "own_session",
    "utf8",
]

HOME = Path(".agentkit")
TENANT = "local"
"""To whom everything belongs that the command line stores, and whose memory it reads by default."""

Home: TypeAlias = Annotated[
    Path, typer.Option(envvar="AGENTKIT_HOME", metavar="DIR", help="Folder that holds conversations and documents.")
]
SessionName: TypeAlias = Annotated[
    str | None, typer.Option("--session", "-s", metavar="NAME", help="Conversation to go on with, or to begin.")
]
TenantName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tenant", metavar="NAME", help="A tenant of the store, where a program named one.", show_default=False
    ),
]
UserName: TypeAlias = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="Whose memory and conversations, where several have some.")
]
EmbedderName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--embedder",
        envvar="AGENTKIT_EMBEDDER",
        metavar="KIND:MODEL",
        help="Model of dense retrieval, such as fastembed:BAAI/bge-small-en-v1.5. The name in a store loads none.",
    ),
]
ChatTemplateName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--chat-template",
        metavar="FILE|NAME",
        help="Chat template of a local model: a name (see `agentkit templates`), that of a model, a file or folder. "
        "The model is asked for raw completions.",
    ),
]
TemplateModel: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model-name",
        metavar="NAME",
        help="A model, whose registered chat template is taken; also asked, where --model names none.",
    ),
]
Kwargs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--kwarg", "-k", metavar="NAME=VALUE", help="An additional kwarg, JSON or text. Repeatable."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


def utf8(argument: str) -> str:
    """Return an argument in characters that can be stored and sent: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(argument).decode("utf-8", "replace")


def has_memory(home: Path) -> bool:
    """Return whether the folder holds a memory; one that may not be entered ends the command.

    `Path.exists` would do, but takes a folder that may not be entered for an empty one from Python 3.14 on.
    """
    try:
        (home / "memory.db").stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        fail(f"{home}: may not be entered")
    return True


def own_session(memory: Memory, name: str) -> StoredSession:
    """Open a conversation; one that holds media in files ends the command.

    The command line stores text only. A store that came from elsewhere could name any file of this machine, and it
    would be sent to the model.
    """
    from agentkit_prompts.context.parts import Media

    session = memory.session(name)
    for number, message in enumerate(session.conversation, 1):
        for part in message.parts:
            if isinstance(part, Media) and isinstance(part.source, Path):
                complain(
                    f"conversation {name!r}, message {number}: it names the file {str(part.source)!r}, which is not "
                    "opened because a store names it; go on with this conversation from a program of yours"
                )
                raise typer.Exit(1)
    return session


def open_existing(home: Path, scope: Scope | None = None, embedder: str | None = None) -> Memory:
    """Open a memory that exists. A missing one is an error, and is not created."""
    if not has_memory(home):
        fail(f"{home}: the folder has no memory; `agentkit ingest` makes one, --home DIR names another folder")
    return open_memory(home, scope, embedder)


def open_memory(home: Path, scope: Scope | None = None, embedder: str | None = None) -> Memory:
    """Open a memory with the embedder that the user named; the name that a store holds loads nothing.

    A store may come from elsewhere, as part of a checkout: what it holds is data.
    """
    from agentkit_memory import Memory
    from agentkit_memory.embedders.store_embedders import embedder_named

    scope = scope or Scope(TENANT)
    if embedder:
        named = embedder_named(utf8(embedder))
        try:
            return Memory(home, scope=scope, embedder=named)
        except EmbedderError as error:
            note(f"dense retrieval is off: {error}")
    memory = Memory(home, scope=scope)
    if memory.model and not embedder:
        note(
            f"dense retrieval is off: {home} was embedded by the model {memory.model!r}, which is loaded only when "
            "you name it with --embedder or AGENTKIT_EMBEDDER"
        )
    return memory
