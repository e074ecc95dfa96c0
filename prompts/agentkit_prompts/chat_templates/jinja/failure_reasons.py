"""Reasons of the failures of Jinja chat templates."""

from __future__ import annotations

import re
from typing import NamedTuple

from agentkit_prompts.chat_templates.jinja.environment import Refusal
from agentkit_prompts.templates.sandbox.operation_errors import TemplateOperationError, message_of

_HINTS = {
    "strftime_now": "the template prints the date: compose with PromptContext(..., now=), or pass now= to the template",
    "bos_token": "pass bos_token=, or load the template from tokenizer_config.json",
    "eos_token": "pass eos_token=, or load the template from tokenizer_config.json",
}


class Reason(NamedTuple):
    """The reason of a failure."""

    message: str
    name: str | None = None
    """Name of a missing variable."""
    refusal: str | None = None
    """Message of a template that refuses the conversation."""


def reason_of(error: Exception) -> Reason:
    """Return the reason of an error that was raised while a template was rendered."""
    match error:
        case Refusal():
            return Reason(f"the template refuses this conversation: {error}", refusal=str(error))
        case RecursionError():
            return Reason("the template or its data nests too deeply")
        case TemplateOperationError():
            return Reason(f"{error} (limits=None disables the limits of a trusted template)")
    message = message_of(error)
    undefined = re.match(r"UndefinedError: '(\w+)' is undefined", message)
    if undefined is None:
        return Reason(message)
    name = undefined[1]
    return Reason(f"{message}; {_HINTS.get(name, f'pass it to render as {name}=')}", name)
