"""Text of a composition in a role-marker template, one message at a time.

In guarded text, a zero-width space breaks each control token that untrusted text would form. The guarded text of a
stored message is cached in its conversation, the guarded text of a prompt in its rendering. The joined texts equal the
text that `chat_text` writes as a whole. If the text of a message depends on other messages, `chat_text` writes all
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit_prompts.chat_templates.chat_turns import runs_of_results
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate
from agentkit_prompts.composition.targets.chat_trees import words_of_tools
from agentkit_prompts.composition.targets.role_marker_frame import (
    DependentMessageError,
    Frame,
    HeadWriter,
    StoredWriter,
    frame_of,
    stored_writer,
)
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.tokens.counter import prompt_count

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent
    from agentkit_prompts.composition.tools_and_output import ToolsAndOutput
    from agentkit_prompts.context.conversation import Conversation

_role = attrgetter("role")
_TASK_OPTIONS = ("add_generation_prompt", "sequence_start", "enable_thinking")


def text_by_message(
    composition: CallContent, template: object, kwargs: Mapping[str, Any], *, is_guarded: bool
) -> str | None:
    """Return the text of a composition, or None if its messages cannot be written one at a time.

    Args:
        composition: The messages and tools.
        template: The chat template.
        kwargs: Options of the chat template; see `RoleMarkerTemplate.task`.
        is_guarded: True to break control tokens in untrusted text.
    """
    try:
        pieces = _pieces(composition, _frame(template, kwargs, is_guarded))
        return "".join([piece if isinstance(piece, str) else piece.text() for piece in pieces])
    except DependentMessageError:
        return None


def tokens_by_message(
    composition: CallContent, template: object, kwargs: Mapping[str, Any], *, is_guarded: bool
) -> int | None:
    """Return the number of tokens of the text of `text_by_message`, or None if that text is None.

    The count of each stored message is cached.
    """
    count_text = prompt_count(composition.counter)
    total = 0
    try:
        for piece in _pieces(composition, _frame(template, kwargs, is_guarded)):
            total += _count_once(count_text, piece) if isinstance(piece, str) else piece.tokens(count_text)
    except DependentMessageError:
        return None
    return total


@lru_cache(maxsize=MAX_CACHED)
def _count_once(count_text: Callable[[str], int], text: str) -> int:
    return count_text(text)


class _StoredText(NamedTuple):
    """Stored messages and the writer of their text."""

    messages: Conversation
    writer: StoredWriter

    def text(self) -> str:
        """Return the text of the messages."""
        runs = self._runs_of_results()
        if not runs:
            return self.messages.join(self.writer.text, "")
        opening, closing = self.writer.frame.around_results
        texts = list(self.messages.derive(self.writer.text))
        for first, last in runs:
            texts[first] = opening + texts[first]
            texts[last] += closing
        return "".join(texts)

    def tokens(self, count_text: Callable[[str], int]) -> int:
        """Return the number of tokens of the text."""
        runs = self._runs_of_results()
        total = self.messages.total(self.writer.counter(count_text))
        return total + len(runs) * sum(map(count_text, self.writer.frame.around_results))

    def _runs_of_results(self) -> list[tuple[int, int]]:
        if not any(self.writer.frame.around_results):
            return []
        roles = self.messages.derive(_role)
        return runs_of_results(roles) if "tool" in roles else []


def _frame(template: object, kwargs: Mapping[str, Any], is_guarded: bool) -> Frame:
    """Return the frame of a template: the text that it writes around messages.

    Raises:
        DependentMessageError: The template does not write one message after the other.
    """
    if not isinstance(template, RoleMarkerTemplate) or not template.is_message_by_message:
        raise DependentMessageError
    options = tuple((name, kwargs[name]) for name in _TASK_OPTIONS if name in kwargs)
    try:
        # The fields of the template are a part of the cache key. An unhashable value, which raises a TypeError, can
        # change before the next turn, so such a template has no frame.
        return frame_of(type(template), tuple(vars(template).items()), options, is_guarded)  # type: ignore[arg-type]
    except TypeError:
        raise DependentMessageError from None


def _pieces(composition: CallContent, frame: Frame) -> list[str | _StoredText]:
    """Return the text of the composition in pieces, in order.

    Raises:
        DependentMessageError: The messages cannot be written one at a time.
    """
    talk, traffic, closing = composition.conversation, composition.intermediate, composition.closing
    if not composition.sends_user or not _has_closed_borders(composition, frame):
        raise DependentMessageError
    head = _head(composition, frame.heads[talk[0].role if talk else "user"])
    if head is None:
        raise DependentMessageError
    # `derive` returns the same set object each time, which is a part of a cache key.
    words = composition.tools_and_output.derive(_words)
    pieces: list[str | _StoredText] = [
        head,
        _StoredText(talk, stored_writer(frame, words, False)),
        frame.user_text(composition.sections[1]),
    ]
    if traffic:
        # Without a closing message, no user message follows the traffic.
        pieces.append(_StoredText(traffic, stored_writer(frame, words, not closing.text)))
    if closing.text:
        pieces.append(frame.user_text(composition.sections[2]))
    return [*pieces, frame.ending]


def _words(tools_and_output: ToolsAndOutput) -> frozenset[str]:
    return words_of_tools(tools_and_output.tools)


def _has_closed_borders(composition: CallContent, frame: Frame) -> bool:
    """True if no control token can span two messages, and the last message is not a message of the assistant."""
    last = "user"
    if composition.intermediate and not composition.closing.text:
        last = composition.intermediate[-1].role
    if last == "assistant" or frame.has_token_over_blank_lines or frame.could_end_in_token(last):
        return False
    return not frame.open_pairs or frame.open_pairs.isdisjoint(pairwise(_roles(composition)))


def _roles(composition: CallContent) -> list[str]:
    """Return the roles of all messages after the system message."""
    roles = [*composition.conversation.derive(_role), "user", *composition.intermediate.derive(_role)]
    if composition.closing.text:
        roles.append("user")
    return roles


def _head(composition: CallContent, writer: HeadWriter) -> str | None:
    """Return the text before the conversation, or None if the text depends on other messages.

    The text is cached in the tools if any, else in the section: the section can be reused with other tools.
    """
    tools_and_output = composition.tools_and_output
    section = composition.sections[0]
    if not composition.sends_system:
        return tools_and_output.derive(writer.with_tools)
    return (
        tools_and_output.derive(writer.with_tools, section)
        if tools_and_output.tools
        else section.derive(writer.without_tools)
    )
