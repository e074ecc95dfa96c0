"""`agentkit token`: who may ask agents that are served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from agentkit.cli.commands.serve_command import ACCESS
from agentkit.cli.options import HOME, TENANT, AsJson, Home, utf8
from agentkit.cli.screen import note, put

__all__ = ["token"]


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is called, such as `ci`.")],
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Whose it is.")] = TENANT,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="The one user it stands for.")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="run, read, approve or metrics. Repeatable; `run` and `read` by default."),
    ] = None,
    access: Annotated[Path | None, typer.Option(metavar="FILE", help="The access file.")] = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Make a token for `agentkit serve`, and show it this once: the file holds its hash only.

    Example: agentkit token ci --tenant acme --scope run --scope read
    """
    from agentkit.server.access import ALL_PERMISSIONS, add_token
    from agentkit_prompts.system.private_files import private_folder

    scopes = tuple(scope or ("run", "read"))
    if unknown := [one for one in scopes if one not in ALL_PERMISSIONS]:
        raise typer.BadParameter(f"--scope {unknown[0]!r:.40}: expected {', '.join(sorted(ALL_PERMISSIONS))}")
    path = access or home / ACCESS
    private_folder(path.absolute().parent)
    made = add_token(path, utf8(name), utf8(tenant), scopes=cast(Any, scopes), user=user and utf8(user))
    if as_json:
        made = json.dumps({"token": made, "file": str(path)})
    put(made)
    note(f"its hash is in {path}")
