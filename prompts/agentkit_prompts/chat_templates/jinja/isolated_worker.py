"""Worker that renders chat templates for another process and returns only their text."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agentkit_prompts.chat_templates.jinja.chat_template import JinjaChatTemplate
from agentkit_prompts.chat_templates.jinja.diagnose import read_names
from agentkit_prompts.chat_templates.jinja.markers import literals
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.request_loop import serve
from agentkit_prompts.templates.sandbox.meter import Limits


def main() -> None:
    """Reply to requests for chat templates until stdin ends."""
    serve(_made, _place)


def _place(error: PromptError) -> tuple[str, dict[str, Any]]:
    names = ("template", "line", "name", "refusal")
    return str(error), {name: getattr(error, name, None) for name in names}


def _made(request: dict[str, Any]) -> Any:
    source, task = request["source"], request["operation"]
    limits = Limits(**request["limits"]) if request["limits"] else None
    now = datetime.fromisoformat(request["now"]) if request.get("now") else None
    template = JinjaChatTemplate(source, limits=limits, file=request["file"], now=now)
    if task == "render":
        variables = {**template.clock, **request["variables"]}
        messages, tools, prompt = request["given"]
        return template.run(source, messages, tools, prompt, variables, request["marks"])
    if task == "literals":
        return list(literals(source))
    return sorted(read_names(source)) if task == "names" else None


if __name__ == "__main__":
    main()
