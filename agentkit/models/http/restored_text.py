"""`RestoredText`: the reply of a model without the changes that were made to texts of its prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from agentkit.models.model import Delta, Reply
from agentkit.models.model_errors import ModelError, ModelInterrupted, ModelReplyCut, ModelReplyError
from agentkit.models.providers import provider_at
from agentkit_prompts.chat_templates.guard.token_marks import Unmarking, token_marks
from agentkit_prompts.chat_templates.tokens_of_models import all_tokens, tokens_of_model
from agentkit_prompts.composition.marked_content import has_brackets, marked_content
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.context.thinking import Thinking

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition


def guarded(composition: Composition, model: str, host: str) -> tuple[Composition, RestoredText | None]:
    """Return a composition with marks in the control tokens of its untrusted text, and the restorer of its reply.

    A server that applies a chat template to messages, such as a local server, reads a token in a message as a token.
    """
    provider = provider_at(host)
    if provider is not None and provider.writes_template(model):
        return composition, None
    control_tokens = tokens_of_model(model)
    if control_tokens is None:
        # Loading all templates takes a while.
        if not has_brackets(composition):
            return composition, None
        control_tokens = all_tokens()
    marked, tokens = marked_content(composition, token_marks(control_tokens))
    if not tokens:
        return composition, None
    return marked, unmarked_text(tokens, is_json=composition.is_answered_in_json)


def unmarked_text(tokens: Iterable[str], *, is_json: bool) -> RestoredText:
    """Return the restorer of a reply to a prompt with marks in control tokens.

    Args:
        tokens: The tokens with a mark in the prompt.
        is_json: True if the text of the reply is JSON, in which a character of a token can be an escape.
    """
    tokens = tuple(tokens)
    json_text = Unmarking(tokens, is_json=True)
    if is_json:
        return RestoredText(json_text, json_text)
    return RestoredText(Unmarking(tokens), json_text)


class Restorer(Protocol):
    """Restorer of the original text in a text of a model."""

    def whole(self, text: str) -> str:
        """Return the original text of a whole text."""
        ...

    def ready(self, text: str) -> int:
        """Return the number of characters of a piece of a stream that no later piece can complete to a changed text."""
        ...


class RestoredText:
    """Restorer of the original text in the deltas and in the message of one reply.

    A model copies the changed texts of its prompt into texts and arguments; tools, validators and the history must see
    the original text.

    Args:
        text: Restorer of the text of the reply.
        json_text: Restorer of the arguments of calls.
    """

    def __init__(self, text: Restorer, json_text: Restorer) -> None:
        self._json = json_text
        self._text = text
        self._held: Delta | None = None
        """End of the latest delta that can be a part of a token."""

    def restart(self) -> None:
        """Forget the end of the latest delta."""
        self._held = None

    def deltas(self, deltas: Sequence[Delta], *, is_last: bool) -> list[Delta]:
        """Return restored deltas. An end that can start a token follows with a later delta, or with `is_last`."""
        restored = [item for delta in deltas for item in self._restored(delta)]
        if is_last and self._held is not None:
            restored.append(self._whole(self._held))
            self._held = None
        return restored

    def _restored(self, delta: Delta) -> Iterator[Delta]:
        rest = self._held
        if rest is not None and (rest.kind, rest.call) == (delta.kind, delta.call):
            delta = delta._replace(text=rest.text + delta.text)
        elif rest is not None:
            yield self._whole(rest)
        end = self._restorer(delta).ready(delta.text)
        self._held = None
        if end < len(delta.text):
            self._held = delta._replace(text=delta.text[end:])
        # An empty delta shows that the reply continues.
        yield self._whole(delta._replace(text=delta.text[:end]))

    def _restorer(self, delta: Delta) -> Restorer:
        if delta.kind == "arguments":
            return self._json
        return self._text

    def _whole(self, delta: Delta) -> Delta:
        return delta._replace(text=self._restorer(delta).whole(delta.text))

    def reply(self, reply: Reply) -> Reply:
        """Return a reply with the original text in its message."""
        message = reply.message
        calls = tuple([replace(call, arguments=self._json.whole(call.arguments)) for call in message.tool_calls])
        thinking = tuple([self._thinking(thought) for thought in message.thinking])
        restored = replace(message, content=self._content(message), tool_calls=calls, thinking=thinking)
        return replace(reply, message=restored)

    def _content(self, message: Message) -> str | tuple[Part, ...]:
        content = message.content
        if isinstance(content, str):
            return self._text.whole(content)
        return tuple(
            [replace(part, text=self._text.whole(part.text)) if isinstance(part, Text) else part for part in content]
        )

    def _thinking(self, thought: Thinking) -> Thinking:
        if thought.is_sealed:
            return thought
        return replace(thought, text=self._text.whole(thought.text))

    def error(self, error: ModelError) -> None:
        """Restore the partial text in an error."""
        if isinstance(error, ModelInterrupted | ModelReplyCut | ModelReplyError):
            error.text = self._text.whole(error.text)
