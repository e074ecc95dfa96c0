"""`PrompterLayout`: chat template of a prompter, a layout with named places and the tokens of a model.

The layout writes the messages that the layers of the prompter compose, so local and hosted models receive the same
messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from agentkit_prompts.chat_templates.chat_turns import call_text
from agentkit_prompts.chat_templates.guard.control_tokens import tokens_and_markers
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.context.wire.wire_tools import openai_tool
from agentkit_prompts.errors import ChatTemplateError, MessageError, Problem, PrompterError, raise_problems
from agentkit_prompts.names import nearest
from agentkit_prompts.prompters.history import GivenTool

_AROUND = {"system": ("sos", "eos"), "user": ("soh", "eoh"), "assistant": ("soa", "eoa"), "tool": ("soe", "eoe")}
TOKENS = (*chain.from_iterable(_AROUND.values()), "tool_start_token", "tool_args_token", "tool_end_token")
"""Tokens at the start and end of system, human, assistant and environment (tool result) messages, and around a tool
call."""
PLACES = ("system", "instruction", "tools", "history", "user", "input")

_FIELD = re.compile(r"\{(\w+)\}")
_PLACE = re.compile(r"\{\w+\}")
_HEADING = re.compile(r"^#{1,6} ?[^\s{}][^\n{}]*:[ \t]*$", re.MULTILINE)


def check_layout(name: str, layout: str, split: str) -> None:
    """Reject a layout with unknown places, with a place twice, or without a place for the input.

    Raises:
        PrompterError: The layout or the split is invalid; names all problems.
    """
    fields = _FIELD.findall(layout)
    problems = _unknown("place", fields, (*PLACES, *TOKENS)) + _unknown("token", _FIELD.findall(split), TOKENS)
    problems += [Problem(place, "is twice in the layout") for place in PLACES if fields.count(place) > 1]
    inputs = {"user", "input"} & set(fields)
    rules = (
        ("input", len(inputs) > 0, "the layout needs {user} or {input}, the place of the input"),
        ("user", len(inputs) < 2 or "{user}{input}" in layout, "write {user}{input}: together they form one message"),
        ("split", split in layout, f"{split!r}, after which the reply starts, is not in the layout"),
    )
    problems += [Problem(place, text) for place, is_valid, text in rules if not is_valid]
    raise_problems(PrompterError, f"layout of {name}", problems)


def _unknown(kind: str, names: Sequence[str], valid: Sequence[str]) -> list[Problem]:
    return [Problem(name, f"unknown {kind}{nearest(name, valid)}") for name in names if name not in valid]


class PrompterLayout:
    """Chat template that writes the messages of a prompter for one model.

    Args:
        layout: Text with places `{system}`, `{instruction}`, `{tools}`, `{history}`, `{user}`, `{input}` and tokens.
        split: Part of the layout after which the reply of the model starts.
        system: Line of the prompter before its instruction.
        tokens: Tokens of the model by name; missing tokens are empty.
        texts: Instruction texts of the prompter. Their headings, such as `### Instruction:`, are control tokens, too.
    """

    def __init__(
        self, layout: str, split: str, system: str, tokens: Mapping[str, str], texts: Sequence[str] = ()
    ) -> None:
        self.layout = layout
        self.tokens = dict(tokens)
        self.system = system
        self._headings = [heading for text in texts for heading in _HEADING.findall(text)]
        self.split = self._fill(split, {})
        # Without a split, the reply starts after the complete layout.
        self._body, _, reply = layout.rpartition(split) if split else (layout, "", "")
        self._reply = split + reply
        self._places = frozenset(_FIELD.findall(layout))
        stop_words = [tokens[name].strip() for name in ("eoa", "soh")]
        self.stop_words: Sequence[str] | None = [*filter(None, stop_words)] or None

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Control tokens: the tokens of the model, the split, the lines of the layout, and the headings of the
        instruction. Of a text with markers in brackets, only the markers are control tokens.
        """
        lines = [line for text in _PLACE.split(self.layout) for line in text.splitlines()]
        return tokens_and_markers((), [*self.tokens.values(), self.split, *lines, *self._headings])

    def render(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: Sequence[GivenTool] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """Return the text of the conversation.

        The last user message fills the place of the input; the messages after it are tool traffic.

        Raises:
            ChatTemplateError: The layout has no place for one of the messages.
        """
        if kwargs:
            options = ", ".join(map(repr, sorted(kwargs)))
            raise ChatTemplateError(f"the layout of a prompter accepts no {options}", name=", ".join(sorted(kwargs)))
        turns = _read_turns(messages)
        head = ""
        if turns and turns[0].role == "system":
            head = turns.pop(0).text
        before, question, after = _around_last_question(turns)
        values = {
            **self._system(head),
            "tools": self._tools(tools),
            "history": "".join(map(self._message_text, before)),
            "input" if "input" in self._places else "user": question,
        }
        self._check_places({**values, "history": values["history"] or after})
        text = self._fill(self._body, values) + "".join(map(self._message_text, after))
        if not add_generation_prompt:
            return text
        return text + self._fill(self._reply, values)

    def _check_places(self, values: Mapping[str, object]) -> None:
        """Raise an error for values that are not empty and have no place in the layout."""
        lost = ", ".join(sorted(name for name, value in values.items() if value and name not in self._places))
        if lost:
            raise ChatTemplateError(f"this layout has no place for {lost}: {self.layout!r}", name=lost)

    def _system(self, text: str) -> dict[str, str]:
        """Split a system message into the values of the places `system` and `instruction`.

        A system message that does not start with the system line of the prompter is an instruction.
        """
        if "system" not in self._places:
            return {"instruction": text}
        if text == self.system or "instruction" not in self._places:
            return {"system": text}
        if text.startswith(f"{self.system}\n"):
            return {"system": self.system, "instruction": text[len(self.system) + 1 :]}
        return {"instruction": text}

    def _tools(self, tools: Sequence[GivenTool] | None) -> str:
        if not tools:
            return ""
        listed = [openai_tool(tool) if isinstance(tool, ToolSpec) else tool for tool in tools]
        return f"### Function-call Tools. \n\n{json.dumps(listed)}\n\n"

    def _message_text(self, message: Message) -> str:
        start, end = _AROUND[message.role]
        calls = "".join(map(self._call, message.tool_calls))
        return f"{self.tokens[start]}{message.text}{calls}{self.tokens[end]}"

    def _call(self, call: ToolCall) -> str:
        """Return a tool call in the form of the model; as JSON if the model has no token before the arguments."""
        separator = self.tokens["tool_args_token"]
        text = call_text(call)
        if separator:
            text = f"{call.name}{separator}{call.arguments}"
        return f"{self.tokens['tool_start_token']}\n{text}{self.tokens['tool_end_token']}\n"

    def _fill(self, layout: str, values: Mapping[str, str]) -> str:
        """Return a layout with its places and tokens filled; braces inside values are not filled."""
        return _FIELD.sub(lambda match: values.get(match[1], self.tokens.get(match[1], "")), layout)


def _read_turns(messages: Sequence[Message | Mapping[str, Any]]) -> list[Message]:
    try:
        return [*read_messages(messages, where="messages", is_linked=False)]
    except MessageError as error:
        raise ChatTemplateError(str(error), problems=error.problems) from error


def _around_last_question(turns: list[Message]) -> tuple[list[Message], str, list[Message]]:
    """Return the messages before the last user message, the text of that message, and the messages after it.

    Without a user message, all messages are before it, and the text is empty.
    """
    for index in reversed(range(len(turns))):
        if turns[index].role == "user":
            return turns[:index], turns[index].text, turns[index + 1 :]
    return turns, "", []
