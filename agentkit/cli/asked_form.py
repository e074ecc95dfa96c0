"""A form of a tool, filled in at a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from agentkit.cli.screen import note
from agentkit.run.parts.decisions import Approved, Decision, Denied
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.wire.clean import clean


def filled_form(call: ToolCall, ask: Callable[[str], str]) -> Decision:
    """Ask for each field of a form; return its answer, or a denial if the person declines.

    Args:
        call: The call that represents the form.
        ask: Shows a text, and returns the typed line without its end.
    """
    form = json.loads(call.arguments)
    note(clean(form["question"]))
    for problem in form.get("problems", ()):
        note(f"  {clean(problem)}")
    # An interrupted question has an empty answer.
    if ask("answer? [y/N] ").lower() not in ("y", "yes"):
        return Denied("")
    answer: dict[str, Any] = {}
    for name, field in form["fields"].items():
        default = form["answer"].get(name)
        typed = ask(f"{_label(name, field, is_required=name in form['required'], default=default)}: ")
        answer[name] = default
        if typed:
            answer[name] = _value(typed, field)
    return Approved({"answer": answer})


def _label(name: str, field: Any, *, is_required: bool, default: Any) -> str:
    details: list[str] = []
    if isinstance(field, Mapping):
        if field.get("description"):
            details.append(str(field["description"]))
        choices = _choices(field)
        if choices:
            details.append(" | ".join(choices))
        if field.get("type", "string") != "string":
            details.append(str(field["type"]))
    if default is not None:
        details.append(f"default: {json.dumps(default)}")
    elif not is_required:
        details.append("optional")
    label = name
    if details:
        label += f" ({'; '.join(details)})"
    return clean(label)


def _choices(field: Mapping[str, Any]) -> list[str]:
    """Return the allowed values of a field, or of the items of a list, with their titles."""
    items = field.get("items")
    if isinstance(items, Mapping):
        return _choices(items)
    if isinstance(field.get("enum"), list):
        return [str(value) for value in field["enum"]]
    choices: list[str] = []
    for choice in field.get("oneOf") or field.get("anyOf") or ():
        if isinstance(choice, Mapping) and "const" in choice:
            value = str(choice["const"])
            if choice.get("title"):
                value += f" = {choice['title']}"
            choices.append(value)
    return choices


def _value(typed: str, field: Any) -> Any:
    """Return the value of a typed text: JSON for numbers, booleans and lists; the text itself if it is no JSON."""
    if isinstance(field, Mapping) and field.get("type", "string") == "string":
        return typed
    try:
        return json.loads(typed)
    except ValueError:
        return typed
