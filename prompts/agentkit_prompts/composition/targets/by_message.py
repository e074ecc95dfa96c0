"""Text of a composition in a role-marker template, one message at a time.

The text of a stored message, with broken control tokens, is cached in its conversation; the text of a prompt is cached
in its rendering. The joined texts equal the text that `chat_text` writes as a whole. Messages whose text depends on
other messages are written by `chat_text`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, runs_of_results
from agentkit_prompts.composition.targets.chat_trees import words_of_tools
from agentkit_prompts.composition.targets.role_marker_frame import (
    Frame,
    HeadWriter,
    NotAloneError,
    StoredWriter,
    frame_of,
    stored_writer,
)
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.tokens.counter import prompt_count

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents
    from agentkit_prompts.composition.declarations import Declarations
    from agentkit_prompts.context.conversation import Conversation

__all__ = ["text_by_message", "tokens_by_message"]

_role = attrgetter("role")
_TASK_OPTIONS = ("add_generation_prompt", "sequence_start", "enable_thinking")


def text_by_message(
    composition: Contents, template: object, kwargs: Mapping[str, Any], *, is_guarded: bool
) -> str | None:
    """Return the text of a composition, or None if its messages cannot be written one at a time.

    Args:
        composition: The messages and tools.
        template: The chat template.
        kwargs: Options of `RoleMarkerTemplate.task`.
        is_guarded: True to break control tokens in untrusted text.
    """
    try:
        pieces = _pieces(composition, _frame(template, kwargs, is_guarded))
        return "".join([piece if isinstance(piece, str) else piece.text() for piece in pieces])
    except NotAloneError:
        return None


def tokens_by_message(
    composition: Contents, template: object, kwargs: Mapping[str, Any], *, is_guarded: bool
) -> int | None:
    """Return the number of tokens of that text. Each stored message is counted once."""
    count_text = prompt_count(composition.counter)
    total = 0
    try:
        for piece in _pieces(composition, _frame(template, kwargs, is_guarded)):
            total += _count_once(count_text, piece) if isinstance(piece, str) else piece.tokens(count_text)
    except NotAloneError:
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
            return self.messages.joined(self.writer.text, "")
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
    """Return the text that a template writes around messages.

    Raises:
        NotAloneError: The template does not write one message after the other.
    """
    if not isinstance(template, RoleMarkerTemplate) or not template.is_message_by_message:
        raise NotAloneError
    options = tuple((name, kwargs[name]) for name in _TASK_OPTIONS if name in kwargs)
    try:
        # A field can have any type; the cache raises a TypeError for an unhashable value.
        return frame_of(type(template), tuple(vars(template).items()), options, is_guarded)  # type: ignore[arg-type]
    except TypeError:  # an unhashable field can change before the next turn
        raise NotAloneError from None


def _pieces(composition: Contents, frame: Frame) -> list[str | _StoredText]:
    """Return the pieces of the text in order.

    Raises:
        NotAloneError: The messages cannot be written one at a time.
    """
    talk, traffic, closing = composition.conversation, composition.intermediate, composition.closing
    if not composition.sends_user or not _has_closed_borders(composition, frame):
        raise NotAloneError
    head = _head(composition, frame.heads[talk[0].role if talk else "user"])
    if head is None:
        raise NotAloneError
    # `derive` returns the same set object each time, which is a part of a cache key.
    words = composition.declarations.derive(_words)
    pieces: list[str | _StoredText] = [
        head,
        _StoredText(talk, stored_writer(frame, words, False)),
        frame.user_text(composition.sections[1]),
    ]
    if traffic:
        # Without a closing message the traffic follows the last message of the user.
        pieces.append(_StoredText(traffic, stored_writer(frame, words, not closing.text)))
    if closing.text:
        pieces.append(frame.user_text(composition.sections[2]))
    return [*pieces, frame.ending]


def _words(declared: Declarations) -> frozenset[str]:
    return words_of_tools(declared.tools)


def _has_closed_borders(composition: Contents, frame: Frame) -> bool:
    """True if no token can span two messages, and the text ends at the start of the reply."""
    last = "user"
    if composition.intermediate and not composition.closing.text:
        last = composition.intermediate[-1].role
    if last == "assistant" or frame.has_token_over_blank_lines or frame.could_end_in_token(last):
        return False
    return not frame.open_pairs or frame.open_pairs.isdisjoint(pairwise(_roles(composition)))


def _roles(composition: Contents) -> list[str]:
    """Return the roles of all messages after the system message."""
    roles = [*composition.conversation.derive(_role), "user", *composition.intermediate.derive(_role)]
    if composition.closing.text:
        roles.append("user")
    return roles


def _head(composition: Contents, writer: HeadWriter) -> str | None:
    """Return the text before the conversation; it is cached in the tools if any, else in the section.

    The section can belong to the layers, which outlive the tools of a context.
    """
    declared = composition.declarations
    section = composition.sections[0]
    if not composition.sends_system:
        return declared.derive(writer.with_tools)
    return declared.derive(writer.with_tools, section) if declared.tools else section.derive(writer.without_tools)
