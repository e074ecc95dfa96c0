"""Text with slots: `{name}` is replaced by input of the user; other braces are text.

The name of a slot is one or more word characters of any script. Braces in the values of slots are not slots.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentkit_prompts.context.prompt_context import CONTEXT_NAMES, PromptContext
from agentkit_prompts.errors import PrompterError
from agentkit_prompts.limits import MAX_NAME_CHARS
from agentkit_prompts.schemas.params import JsonSchema
from agentkit_prompts.templates.rendered import Joined, Rendered
from agentkit_prompts.templates.sandbox.operations import FUNCTIONS
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tree.prompt import BasePrompt

_SLOT = re.compile(r"\{(\w+)\}")
_SLOT_TYPES = ["string", "number", "boolean"]


def slots_of(*texts: str) -> tuple[str, ...]:
    """Return the distinct names of the slots, in the order of their first use."""
    return tuple(dict.fromkeys(name for text in texts for name in _SLOT.findall(text)))


class SlotPrompt(BasePrompt):
    """Text of a prompter with slots filled from `user_input.additional_kwargs`.

    If the prompter has only one slot and its kwarg is missing, the input of the user fills the slot.
    """

    slots: tuple[str, ...] = ()
    """The slots of all texts of the prompter."""
    text_slots: tuple[str, ...] = ()
    """The slots of this text."""
    first_line: str | None = None
    """Line before the text, also before an empty text; None for no line."""
    other_input: Literal["append", "reject", "ignore"] = "ignore"
    """Use of input that no slot shows: append it to the text, reject it, or ignore it."""

    @classmethod
    def of(
        cls,
        text: str,
        slots: Sequence[str],
        *,
        other_input: Literal["append", "reject", "ignore"] = "ignore",
        **data: Any,
    ) -> SlotPrompt:
        """Create the prompt of a text; `slots` are the slots of all texts of the prompter."""
        pieces: list[str] = []
        for number, piece in enumerate(_SLOT.split(text)):
            # `split` by a pattern with one group returns text and slots alternately.
            is_slot = number % 2 == 1
            if is_slot:
                pieces.append(f"{{{_variable_of(piece, slots.index(piece))}}}")
            else:
                pieces.append(piece.replace("{", "{{").replace("}", "}}"))
        if other_input == "append":
            pieces.append("{user_input}")
        template = Template("".join(pieces), engine="fstring")
        return cls(template, slots=tuple(slots), text_slots=slots_of(text), other_input=other_input, **data)

    def _additional_names(self) -> frozenset[str]:
        return frozenset(self._slot_by_variable)

    @property
    def _slot_by_variable(self) -> Mapping[str, str]:
        """Names of slots, by the names of their variables in the template."""
        return {_variable_of(slot, self.slots.index(slot)): slot for slot in self.text_slots}

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """Schema in which every slot is text, a number or a boolean; None without slots.

        The only slot of a prompter is not required, because the input can fill it.
        """
        if not self.text_slots:
            return None
        schema: JsonSchema = {
            "type": "object",
            "properties": {slot: {"type": list(_SLOT_TYPES)} for slot in self.text_slots},
        }
        if len(self.slots) > 1:
            schema["required"] = list(self.text_slots)
        return schema

    @property
    def reads(self) -> frozenset[str] | None:
        """`user_input` if the prompt has a slot, shows the input or rejects unused input; otherwise nothing."""
        if self.text_slots or self.other_input != "ignore":
            return frozenset({"user_input"})
        return frozenset()

    def _takes_input(self, ctx: PromptContext) -> bool:
        """True if the prompter has only one slot and the user's input fills it."""
        return len(self.slots) == 1 and self.slots[0] not in ctx.user_input.additional_kwargs

    def values(self, ctx: PromptContext) -> Mapping[str, Any]:
        """Return the values of the template: the slots, and the input, which is empty if it fills a slot.

        Raises:
            PrompterError: Slots have no value; names all of them. `compose` replaces the error by a KwargsError that
                names the missing kwargs of all prompts.
        """
        kwargs = ctx.user_input.additional_kwargs
        if self._takes_input(ctx):
            return {"user_input": "", **dict.fromkeys(self._slot_by_variable, ctx.user_input.input)}
        missing = [slot for slot in self.text_slots if slot not in kwargs]
        if missing:
            raise PrompterError(
                f"additional_kwargs lack the slots {', '.join(map(repr, missing))}", name=", ".join(missing)
            )
        return {"user_input": ctx.user_input, **{field: kwargs[slot] for field, slot in self._slot_by_variable.items()}}

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the text, after its first line if any.

        Raises:
            PrompterError: A slot has no value; or the prompter has no place for the input, which is not empty.
        """
        values = self.values(ctx)
        if self.other_input == "reject" and values["user_input"] and ctx.user_input.input:
            raise PrompterError(
                "the input has no place: this prompter shows input only in slots; write a slot such as {input} into "
                "its instruction, or add a slot to extra_keys",
                name="input",
            )
        body = self.template.run(values, prefixes=self._context_paths(ctx))
        if self.first_line is None:
            return body
        if not body.text:
            return Rendered.from_text(self.first_line)
        return Joined([body], before=f"{self.first_line}\n")

    def _context_paths(self, ctx: PromptContext) -> dict[str, str]:
        """Return the path in the context of each slot, by the name of the variable in the template."""
        if self._takes_input(ctx):
            return dict.fromkeys(self._slot_by_variable, "user_input")
        return {field: f"additional_kwargs.{slot}" for field, slot in self._slot_by_variable.items()}


def _variable_of(slot: str, index: int) -> str:
    """Return the name of the variable of a slot in the template.

    The variable has the name of the slot; or it is `slot_N`, with the index, if templates cannot use this name as a
    variable or use it for a value of the context or a function.
    """
    is_name = slot.isidentifier() and len(slot) <= MAX_NAME_CHARS and not slot.startswith(("_", "slot_"))
    if is_name and slot not in CONTEXT_NAMES and slot not in FUNCTIONS:
        return slot
    return f"slot_{index}"
