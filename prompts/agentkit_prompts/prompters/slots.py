"""Text with slots: `{word}` is replaced by input of the user; other braces are text.

A slot is one or more word characters, of any script. Values are not scanned for slots, so their braces are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentkit_prompts.context.prompt_context import CONTEXT_NAMES, PromptContext
from agentkit_prompts.errors import PrompterError
from agentkit_prompts.limits import MAX_NAME_CHARS
from agentkit_prompts.schemas.params import JsonSchema
from agentkit_prompts.templates.rendered import Joined, Rendered
from agentkit_prompts.templates.sandbox.operations import FUNCTIONS
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["SlotPrompt", "slots_of"]

_SLOT = re.compile(r"\{(\w+)\}")
_SLOT_TYPES = ["string", "number", "boolean"]


def slots_of(*texts: str) -> tuple[str, ...]:
    """Return the distinct names of the slots, in the order of their first use."""
    return tuple(dict.fromkeys(name for text in texts for name in _SLOT.findall(text)))


class SlotPrompt(BasePrompt):
    """Text of a prompter with slots filled from `user_input.additional_kwargs`.

    If the prompter has only one slot and its kwarg is missing, the input of the user fills it.
    """

    slots: tuple[str, ...] = ()
    """The slots of the whole prompter."""
    own: tuple[str, ...] = ()
    """The slots of this text."""
    lead: str | None = None
    """Line before the text; also shown for an empty text."""
    input: bool | None = None
    """True if the input of the user follows the text. False rejects input that no slot shows; None ignores it."""

    @classmethod
    def of(cls, text: str, slots: Sequence[str], *, input: bool | None = None, **data: Any) -> SlotPrompt:
        """Create the prompt of a text that can contain some of the `slots`."""
        pieces: list[str] = []
        for number, piece in enumerate(_SLOT.split(text)):
            # Splitting by a pattern with one group returns text and slots alternately.
            is_slot = number % 2 == 1
            if is_slot:
                pieces.append(f"{{{_field(piece, slots.index(piece))}}}")
            else:
                pieces.append(piece.replace("{", "{{").replace("}", "}}"))
        if input:
            pieces.append("{user_input}")
        template = Template("".join(pieces), engine="fstring")
        return cls(template, slots=tuple(slots), own=slots_of(text), input=input, **data)

    def _declared(self) -> frozenset[str]:
        return frozenset(self._fields)

    @property
    def _fields(self) -> Mapping[str, str]:
        """Slots by their name in the template."""
        return {_field(slot, self.slots.index(slot)): slot for slot in self.own}

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """Schema in which every slot is text, a number or a boolean; a slot that the input can fill is not required."""
        if not self.own:
            return None
        schema: JsonSchema = {"type": "object", "properties": {slot: {"type": list(_SLOT_TYPES)} for slot in self.own}}
        if len(self.slots) > 1:
            schema["required"] = list(self.own)
        return schema

    @property
    def reads(self) -> frozenset[str] | None:
        """`user_input` if the prompt has a slot, shows the input or rejects unused input; otherwise nothing."""
        if self.own or self.input is not None:
            return frozenset({"user_input"})
        return frozenset()

    def _takes_input(self, ctx: PromptContext) -> bool:
        """True if the user's input fills the only slot."""
        return len(self.slots) == 1 and self.slots[0] not in ctx.user_input.additional_kwargs

    def values(self, ctx: PromptContext) -> Mapping[str, Any]:
        """Return the value of every slot, and the input if no slot shows it.

        Raises:
            PrompterError: A slot has no value; the error names all these slots. `compose` converts it to a KwargsError
                for all prompts.
        """
        kwargs = ctx.user_input.additional_kwargs
        if self._takes_input(ctx):
            return {"user_input": "", **dict.fromkeys(self._fields, ctx.user_input.input)}
        missing = [slot for slot in self.own if slot not in kwargs]
        if missing:
            raise PrompterError(
                f"additional_kwargs lack the slots {', '.join(map(repr, missing))}", name=", ".join(missing)
            )
        return {"user_input": ctx.user_input, **{field: kwargs[slot] for field, slot in self._fields.items()}}

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the lead and the text.

        Raises:
            PrompterError: The input is not empty, but no slot or text of the prompter shows it, or a slot has no value.
        """
        values = self.values(ctx)
        if self.input is False and values["user_input"] and ctx.user_input.input:
            raise PrompterError(
                "the input has no place: this prompter shows input only in slots; write a slot such as {input} into "
                "its instruction, or add a slot to extra_keys",
                name="input",
            )
        body = self.template.run(values, prefixes=self._context_paths(ctx))
        if self.lead is None:
            return body
        if not body.text:
            return Rendered.from_text(self.lead)
        return Joined([body], before=f"{self.lead}\n")

    def _context_paths(self, ctx: PromptContext) -> dict[str, str]:
        """Return the path in the context of each value that the template shows."""
        if self._takes_input(ctx):
            return dict.fromkeys(self._fields, "user_input")
        return {field: f"additional_kwargs.{slot}" for field, slot in self._fields.items()}


def _field(slot: str, index: int) -> str:
    """Return the name of a slot in the template.

    The name is the slot, or `slot_N` if the slot is not a valid identifier or is a name of the context.
    """
    is_name = slot.isidentifier() and len(slot) <= MAX_NAME_CHARS and not slot.startswith(("_", "slot_"))
    if is_name and slot not in CONTEXT_NAMES and slot not in FUNCTIONS:
        return slot
    return f"slot_{index}"
