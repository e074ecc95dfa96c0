"""`agentkit token`: creates a token for `agentkit serve`."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from agentkit.cli.commands.serve_command import ACCESS
from agentkit.cli.options import HOME, TENANT, AsJson, Home, has_memory, open_memory, utf8
from agentkit.cli.screen import note, put


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token, such as `ci`.")],
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Tenant of the token.")] = TENANT,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="User that the token is bound to.")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE", help="run, read, approve, play or metrics. Repeatable; `run` and `read` by default."
        ),
    ] = None,
    access: Annotated[Path | None, typer.Option(metavar="FILE", help="The access file.")] = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Create a token for `agentkit serve` and print it once: the access file contains only its hash.

    Example: agentkit token ci --tenant acme --scope run --scope read
    """
    from agentkit.server.access import ALL_PERMISSIONS, add_token
    from agentkit_prompts.system.private_files import private_folder

    scopes = tuple(scope or ("run", "read"))
    for permission in scopes:
        if permission not in ALL_PERMISSIONS:
            raise typer.BadParameter(f"--scope {permission!r:.40}: expected {', '.join(sorted(ALL_PERMISSIONS))}")
    path = access or home / ACCESS
    private_folder(path.absolute().parent)
    text = add_token(path, utf8(name), utf8(tenant), scopes=cast(Any, scopes), user=user and utf8(user))
    if as_json:
        text = json.dumps({"token": text, "file": str(path)})
    put(text)
    note(f"the hash of the token is in {path}")
    _note_missing_documents(home, utf8(tenant))


def _note_missing_documents(home: Path, tenant: str) -> None:
    """Print a note if the tenant has no documents in the memory of the folder, but other tenants have."""
    from agentkit_memory import StoreError

    # The token is valid, whatever the state of the memory is; agents of the server can have another memory.
    with suppress(StoreError):
        if has_memory(home):
            with open_memory(home) as memory:
                for problem in memory.within(tenant).missing_documents():
                    note(problem)
