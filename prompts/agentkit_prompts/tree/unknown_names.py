"""The error about names of a template that the context cannot supply."""

from __future__ import annotations

from collections.abc import Mapping

from agentkit_prompts.errors import TemplateError
from agentkit_prompts.names import similar
from agentkit_prompts.templates.template import Template


def unknown_names(
    prompt_class: type,
    label: str,
    template: Template,
    unknown: Mapping[str, int],
    names: frozenset[str],
    *,
    is_own_code: bool,
) -> TemplateError:
    """Return the error about unknown names of the template of a prompt.

    Args:
        prompt_class: Class of the prompt.
        label: Label of the prompt.
        template: The template.
        unknown: Lines of the unknown names.
        names: Valid names.
        is_own_code: True if the class is outside of this package and has custom code.
    """
    first = next(iter(unknown))
    listed: list[str] = []
    for name, line in sorted(unknown.items(), key=lambda item: item[1]):
        details = [f"line {line}"]
        suggestion = similar(name, names)
        if suggestion is not None:
            details.append(f"did you mean {suggestion!r}?")
        listed.append(f"{name!r} ({', '.join(details)})")
    if is_own_code:
        # Only the class knows the names of the values that it computes.
        advice = (
            f"If {prompt_class.__name__} computes these values, list the names in the class: "
            f"supplies = {{{', '.join(map(repr, sorted(unknown)))}}}"
        )
    else:
        remedy = "use AdditionalInfoPrompt"
        if template.file is not None and prompt_class.__module__.startswith("agentkit_prompts."):
            remedy = "write `kind: info` between two lines of --- at the start of the file"
        # An f-string template reads plain names only, and sends `{{ ... }}` as text.
        if template.engine == "jinja":
            remedy += f", or write {{{{ additional_kwargs.{first} }}}}"
        advice = f"For data that comes with the user's input, {remedy}"
    text = template.text
    if not isinstance(text, str):
        text = next(iter(text.values()))
    return TemplateError(
        f"{label}: the context cannot supply {', '.join(listed)}; valid names: {', '.join(sorted(names))}. {advice}",
        file=template.file,
        line=unknown[first],
        variable=first,
    ).in_text(text)
