"""The `agentkit` command. Needs the extra `cli`."""

from __future__ import annotations

import sys

from agentkit_prompts.extras import install

__all__ = ["main"]

_PACKAGES = frozenset({"rich", "typer"})
"""Packages of the extra `cli`."""


def main() -> None:
    """Run the command line and exit with its exit code."""
    try:
        from agentkit.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        sys.exit(f"agentkit: the command line needs the extra `cli`: {install('cli')}")
    except KeyboardInterrupt:
        # Ctrl-C before the command was imported.
        sys.exit(130)
    run()
