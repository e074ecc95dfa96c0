"""Check of the variables that a caller passes to a chat template."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from agentkit_prompts.errors import ChatTemplateError, Problem, listed
from agentkit_prompts.names import nearest, similar

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.protocol import ChatTemplate


def check_variables(where: str, variables: Mapping[str, Any], template: ChatTemplate) -> None:
    """Reject variables that a chat template would ignore; a template without `variables` is not checked.

    Args:
        where: Name of the option or method with the variables, for errors.
        variables: The variables by name.
        template: The template that receives the variables.

    Raises:
        ChatTemplateError: Names all variables that the template does not read.
    """
    if not variables:
        return
    valid: Collection[str] | None = getattr(template, "variables", None)
    if valid is None:
        return
    # A variable with the value None, such as `documents=None`, has no effect in any template.
    unknown = [name for name, value in variables.items() if value is not None and name not in valid]
    if not unknown:
        return
    problems: list[Problem] = []
    for name in unknown:
        advice = nearest(str(name), valid) or "; the template reads no variables"
        problems.append(Problem(str(name), f"the template does not read this variable{advice}"))
    raise ChatTemplateError(
        f"{where}: {listed(problems)}",
        name=", ".join(map(str, unknown)),
        problems=problems,
        suggestion=similar(str(unknown[0]), valid),
    )
