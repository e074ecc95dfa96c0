"""Advice on missing extras, for error messages."""

from __future__ import annotations


def install(extra: str) -> str:
    """Return the commands that install an extra: from the package index, and in a clone."""
    return f"pip install 'agentkit-prompt-tree[{extra}]', in a clone pip install -e '.[{extra}]'"
