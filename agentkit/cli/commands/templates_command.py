"""`agentkit templates`: the chat templates that `--chat-template` takes by name."""

from __future__ import annotations

from agentkit.cli.options import AsJson
from agentkit.cli.screen import put_json, put_table
from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES
from agentkit_prompts.composition.targets.tools_in_text import has_place_for_tools

__all__ = ["templates"]


def templates(as_json: AsJson = False) -> None:
    """List the chat templates that --chat-template takes by name, and which have a place for tools.

    Where a template has none, a prompt has to show the tools: a prompt file of `kind: tools`.

    Example: agentkit templates
    """
    found = {name: has_place_for_tools(CHAT_TEMPLATES.get(name)()) for name in sorted(CHAT_TEMPLATES)}
    if as_json:
        put_json({"templates": [{"name": name, "tools": tools} for name, tools in found.items()]})
        return
    put_table(("name", "tools"), [(name, "yes" if tools else "no") for name, tools in found.items()])
