"""Options that several commands take, and how their values are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

__all__ = ["HOME", "AsJson", "Home", "SessionName", "UserName", "utf8"]

HOME = Path(".agentkit")

Home: TypeAlias = Annotated[
    Path, typer.Option(envvar="AGENTKIT_HOME", metavar="DIR", help="Folder that holds conversations and documents.")
]
SessionName: TypeAlias = Annotated[
    str | None, typer.Option("--session", "-s", metavar="NAME", help="Conversation to go on with, or to begin.")
]
UserName: TypeAlias = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="A user of the store, where a program wrote for several.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


def utf8(argument: str) -> str:
    """Return an argument in characters that can be stored and sent: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(argument).decode("utf-8", "replace")
