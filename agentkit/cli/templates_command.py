"""`agentkit templates`: the chat templates that `--chat-template` takes by name."""

from __future__ import annotations

from agentkit.cli.options import AsJson
from agentkit.cli.screen import put, put_json
from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES

__all__ = ["templates"]


def templates(as_json: AsJson = False) -> None:
    """List the chat templates that --chat-template takes by name.

    Example: agentkit templates
    """
    names = sorted(CHAT_TEMPLATES)
    if as_json:
        put_json({"templates": names})
        return
    for name in names:
        put(name)
