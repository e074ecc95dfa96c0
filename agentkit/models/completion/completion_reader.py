"""`CompletionReader`: reader of completions, whose text contains thinking and tool calls in the format of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentkit.models.completion.functionary import FunctionaryReply
from agentkit.models.completion.harmony import HarmonyReply
from agentkit.models.completion.leading_thoughts import LeadingThoughts
from agentkit.models.completion.reply_tokens import ReplyTokens
from agentkit.models.completion.text_tool_calls import TextToolCalls
from agentkit.models.http.reader import IncompleteCall
from agentkit.models.http.reply_reader import ReplyReader
from agentkit.models.model import Delta
from agentkit_prompts.chat_templates.tool_calls.formats import FUNCTIONARY, HARMONY
from agentkit_prompts.chat_templates.tool_calls.reply_text import Schemas
from agentkit_prompts.composition.targets.tools_in_text import with_unreadable_call, with_written
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.thought_fields import THOUGHT_FIELDS

if TYPE_CHECKING:
    from agentkit.models.model import Reply

_OPENING = 8
"""Number of characters by which the opening tag of a call is found in a rendering."""
_NO_ENDPOINT = Owner("completion")


class CompletionReader(ReplyReader):
    """Reads completions: text that contains thinking and tool calls in the format of the model."""

    def __init__(
        self,
        schemas: Schemas,
        format: str | None,
        space_before: Callable[[str, ToolCall, str], str] | None = None,
        *,
        opening: str = "",
        stores_text: bool = False,
        leading: LeadingThoughts | None = None,
        owner: Owner = _NO_ENDPOINT,
    ) -> None:
        super().__init__(owner)
        self.tokens: ReplyTokens | None = None
        """Reader of the token ids; None if they were not requested."""
        self._leading = leading
        """Parser of the thinking blocks at the start of the text; None if thinking is text."""
        self._is_thought_cut = False
        """True if the reply reached its token limit inside a thinking block."""
        self._opening = opening
        """White space that the template writes before every reply."""
        self._space_before = space_before
        self._written: list[str] | None = None
        """The text that contains the calls; None if the next prompt does not contain this text."""
        if stores_text:
            self._written = []
        self._space: list[str] = []
        """White space at the end of the text, held back until the next text."""
        self._parser: TextToolCalls | HarmonyReply | FunctionaryReply | None = None
        self._thoughts: list[str] = []
        """Pieces of the thinking."""
        if leading is not None:
            self._thoughts = leading.thoughts
        self._emitted_thoughts = 0
        """Number of emitted pieces of the thinking."""
        if format == HARMONY:
            self._parser = harmony = HarmonyReply(schemas)
            self._thoughts = harmony.thoughts
        elif format == FUNCTIONARY:
            self._parser = FunctionaryReply(schemas)
        elif schemas:
            self._parser = TextToolCalls(schemas, format)

    def _message_delta(self, choice: dict[str, Any]) -> object:
        text = choice.get("text")
        if self.tokens is not None:
            self.tokens.add(choice)
        # The template writes this space before every reply; the next prompt would contain it twice.
        if self._opening and isinstance(text, str) and text:
            text, self._opening = text.removeprefix(self._opening), ""
        return {"content": text}

    def _visible(self, text: str, *, last: bool) -> str:
        if self._leading is not None:
            text = self._without_thoughts(self._leading, text, last=last)
        parser = self._parser
        if parser is None:
            return text
        if self._written is not None:
            self._written.append(text)
        text = parser.add(text)
        if isinstance(parser, TextToolCalls):
            if last:
                return self._last_text(parser, text)
            return self._without_space(text)
        if last:
            text += parser.end(at_limit=self._is_at_limit)
        return text

    @property
    def _is_at_limit(self) -> bool:
        return self.finish_reason == "length"

    def _without_thoughts(self, leading: LeadingThoughts, text: str, *, last: bool) -> str:
        text = leading.add(text)
        if last and self._is_at_limit and leading.is_open:
            self._is_thought_cut = True
        elif last:
            text += leading.end()
        return text

    def _last_text(self, parser: TextToolCalls, text: str) -> str:
        """Return the rest of the text, with the held-back white space."""
        opening = parser.held.lstrip()[:_OPENING]
        text += parser.end(at_limit=self._is_at_limit)
        space = "".join(self._space)
        self._space.clear()
        if space and not text and opening and parser.calls and self._space_before is not None:
            # The template writes this space before a call; the next prompt would contain it twice.
            space = space.removesuffix(self._space_before(self.text, parser.calls[0], opening))
        return space + text

    def _without_space(self, text: str) -> str:
        """Return text without the white space at its end, which is held back."""
        bare = text.rstrip()
        if not bare:
            self._space.append(text)
            return ""
        visible = "".join([*self._space, bare])
        self._space = [text[len(bare) :]]
        return visible

    def _add_text(self, text: str, *, last: bool = False) -> list[Delta]:
        deltas = super()._add_text(text, last=last)
        if thought := "".join(self._thoughts[self._emitted_thoughts :]):
            deltas.insert(0, Delta(thought, "thinking"))
        self._emitted_thoughts = len(self._thoughts)
        if self._parser is not None:
            for call in self._parser.calls:
                deltas += self._add_call({"id": call.id, "function": {"name": call.name, "arguments": call.arguments}})
            self._parser.calls.clear()
        if text and not deltas:
            # The whole text is held back. An empty delta restarts the timeout of the stream.
            deltas = [Delta("")]
        return deltas

    def reply(self, model: str) -> Reply:
        self.end()
        if self._is_thought_cut:
            raise IncompleteCall("while the model was thinking")
        if self._parser is not None and self._parser.is_cut:
            raise IncompleteCall("inside a tool call")
        if thought := "".join(self._thoughts):
            self._unknown[THOUGHT_FIELDS[0]] = thought
        reply = super().reply(model)
        return replace(reply, message=self._stored(reply.message))

    def _stored(self, message: Message) -> Message:
        """Return the message with the text and the tokens that the next prompt repeats."""
        if self._parser is not None and self._parser.unreadable and not message.tool_calls:
            message = with_unreadable_call(message)
        elif self._written is not None and message.tool_calls:
            message = with_written(message, clean("".join(self._written)))
        if self.tokens is None:
            return message
        return self.tokens.stored(message)
