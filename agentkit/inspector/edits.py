"""Copies of layers with the templates of the editor of the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentkit_prompts.errors import ContextError, PromptError
from agentkit_prompts.names import similar
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tree.layers import PLACES, Layers
from agentkit_prompts.tree.prompt import BasePrompt

_INNER = re.compile(r"(?<!\w)(\w++)\[(\d++)\]")


def edited_layers(layers: Layers, templates: Mapping[str, str]) -> Layers:
    """Return a copy of the layers with changed templates.

    Args:
        layers: The layers.
        templates: New template texts by the path of the prompt, such as `system[0].wrapped_prompts[1]`. The engine of
            the present template is used; an empty text leaves the prompt out.

    Raises:
        ContextError: Paths are unknown. The error lists all unknown paths.
        PromptError: A template cannot be compiled, or reads an unknown value. The error names the prompt.
    """
    paths = {path for path, _ in layers.walk()}
    problems: list[tuple[str, str]] = []
    for path in templates:
        if path not in paths:
            hint = similar(path, paths)
            problem = "no prompt has this path"
            if hint:
                problem += f", did you mean {hint!r}?"
            problems.append((path[:80], problem))
    if problems:
        raise ContextError("layers", problems)
    update: dict[str, Any] = {}
    for place in PLACES:
        prompts = [
            _edited(f"{place}[{index}]", prompt, templates) for index, prompt in enumerate(getattr(layers, place))
        ]
        # Prompts without a change stay the same objects, so that their compiled templates are used again.
        if any(new is not old for new, old in zip(prompts, getattr(layers, place), strict=True)):
            update[place] = prompts
    if not update:
        return layers
    return layers.model_copy(update=update)


def _edited(path: str, prompt: BasePrompt, templates: Mapping[str, str]) -> BasePrompt:
    """Return a prompt with changed templates; the same prompt if nothing changes."""
    update: dict[str, Any] = {}
    children: dict[str, list[BasePrompt]] = {}
    for name, child in prompt.children:
        new = _edited(f"{path}.{name}", child, templates)
        match = _INNER.fullmatch(name)
        if new is child:
            continue
        if match is None or not hasattr(prompt, match[1]):
            raise PromptError(
                f"{path}.{name}: a prompt inside of {type(prompt).__name__} cannot be changed from outside",
                path=f"{path}.{name}",
            )
        attribute, index = match[1], int(match[2])
        children.setdefault(attribute, list(getattr(prompt, attribute)))[index] = new
    update.update(children)
    text = templates.get(path)
    if text is not None and text != prompt.template.text:
        template = prompt.template
        try:
            update["template"] = Template(text, engine=template.engine, params_schema=template.params_schema)
        except PromptError as error:
            raise error.at(path) from error.__cause__
    if not update:
        return prompt
    try:
        return prompt.model_copy(update=update)
    except PromptError as error:
        raise error.at(path) from error.__cause__
