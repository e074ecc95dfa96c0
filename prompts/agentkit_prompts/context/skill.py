"""`Skill`: instructions for one kind of task, which a model loads when it needs them."""

from __future__ import annotations

from dataclasses import dataclass

from agentkit_prompts.context.checked_fields import Trust
from agentkit_prompts.context.items import ContextItem, field_error, short_form
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.names import reject_unknown_fields


@reject_unknown_fields(field_error)
@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Skill(ContextItem):
    """A skill: its name and description, and its instructions if it is loaded. Raises like `Document`."""

    __repr__ = short_repr

    _full = short_form("name", str)

    name: str
    description: str = ""
    text: str = ""
    """The instructions; empty in the list of the skills that can be loaded."""
    source: str = ""
    """File of the skill."""
    trust: Trust = "untrusted"
