"""`agentkit templates`: lists the registered chat templates."""

from __future__ import annotations

from agentkit.cli.options import AsJson
from agentkit.cli.screen import put_json, put_table


def templates(as_json: AsJson = False) -> None:
    """List the names of chat templates for --chat-template, and if they have a place for tools.

    For a template without a place for tools, a prompt must describe the tools: a prompt file with `kind: tools`.

    Example: agentkit templates
    """
    from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES
    from agentkit_prompts.composition.targets.tools_in_text import has_place_for_tools

    support = {name: has_place_for_tools(CHAT_TEMPLATES.get(name)()) for name in sorted(CHAT_TEMPLATES)}
    if as_json:
        put_json({"templates": [{"name": name, "tools": tools} for name, tools in support.items()]})
        return
    put_table(("name", "tools"), [(name, "yes" if tools else "no") for name, tools in support.items()])
