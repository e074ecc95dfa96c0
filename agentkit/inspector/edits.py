"""Changes of a prompt that somebody tries out: other templates, another budget, another input. Nothing is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentkit_prompts.errors import ContextError, PromptError
from agentkit_prompts.names import similar
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tree.layers import PLACES, Layers
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["edited_layers"]

_INNER = re.compile(r"(\w+)\[(\d+)\]")


def edited_layers(layers: Layers, templates: Mapping[str, str]) -> Layers:
    """Return the layers with other templates in the place of some.

    Args:
        layers: The layers as they are; these are not changed.
        templates: The new text by the path of the prompt, such as `system[0].wrapped_prompts[1]`. It is read by the
            engine of the template that it takes the place of; empty text leaves the prompt out.

    Raises:
        ContextError: Some paths lead to no prompt; names all of them.
        PromptError: A template cannot be compiled, or reads what the context cannot supply; names the prompt.
    """
    known = {path for path, _ in layers.walk()}
    if wrong := [path for path in templates if path not in known]:
        hints = {path: similar(path, known) for path in wrong}
        raise ContextError(
            "layers",
            [
                (path[:80], "no prompt has this path" + (f", did you mean {hints[path]!r}?" if hints[path] else ""))
                for path in wrong
            ],
        )
    update: dict[str, Any] = {}
    for place in PLACES:
        prompts = [
            _edited(f"{place}[{index}]", prompt, templates) for index, prompt in enumerate(getattr(layers, place))
        ]
        if any(new is not old for new, old in zip(prompts, getattr(layers, place), strict=True)):
            update[place] = prompts
    return layers.model_copy(update=update) if update else layers


def _edited(path: str, prompt: BasePrompt, templates: Mapping[str, str]) -> BasePrompt:
    update: dict[str, Any] = {}
    children: dict[str, list[BasePrompt]] = {}
    for name, child in prompt.children:
        new = _edited(f"{path}.{name}", child, templates)
        found = _INNER.fullmatch(name)
        if new is child:
            continue
        if found is None or not hasattr(prompt, found[1]):
            raise PromptError(
                f"{path}.{name}: a prompt inside of {type(prompt).__name__} cannot be changed from outside",
                path=f"{path}.{name}",
            )
        children.setdefault(found[1], list(getattr(prompt, found[1])))[int(found[2])] = new
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
