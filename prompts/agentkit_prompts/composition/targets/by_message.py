"""A composition as a role-marker template writes it, one message at a time.

The text of a stored message, its control tokens broken, is kept with its conversation; the text of a prompt is kept
with its rendering. Joined they are the text that `chat_text` writes as a whole. Messages whose text depends on other
messages are left to `chat_text`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise, product
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit_prompts.chat_templates.chat_turns import Turn, read_turns
from agentkit_prompts.chat_templates.guard.control_tokens import (
    ControlTokens,
    control_tokens_of,
    is_at_line_start,
    tokens_of,
)
from agentkit_prompts.chat_templates.guard.stand_ins import STAND_IN
from agentkit_prompts.chat_templates.guard.taint_tracking import broken, broken_segments
from agentkit_prompts.chat_templates.guard.tainted_text import Tree, untagged
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task, runs_of_results
from agentkit_prompts.composition.contents import Contents
from agentkit_prompts.composition.sections import SEPARATOR
from agentkit_prompts.composition.targets.chat_trees import TreeReader, is_harmless_tool, words_of_tools
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.wire_tools import openai_tool
from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.tokens.counter import prompt_count

if TYPE_CHECKING:
    from agentkit_prompts.composition.declarations import Declarations
    from agentkit_prompts.composition.sections import Section
    from agentkit_prompts.context.conversation import Conversation
    from agentkit_prompts.templates.rendered import Rendered

__all__ = ["text_by_message", "tokens_by_message"]

_role = attrgetter("role")
_TASK_OPTIONS = ("add_generation_prompt", "sequence_start", "enable_thinking")


class _NotAloneError(Exception):
    """A message that cannot be written without the others."""


def text_by_message(
    composition: Contents, template: object, kwargs: Mapping[str, Any], *, is_guarded: bool
) -> str | None:
    """Return the text of a composition, or None if its messages cannot be written one at a time.

    Args:
        composition: The messages and tools.
        template: The chat template.
        kwargs: Options of `RoleMarkerTemplate.task`; other options are for other templates.
        is_guarded: True if untrusted text must not form control tokens: the tokens in it are broken.
    """
    try:
        pieces = _pieces(composition, template, kwargs, is_guarded)
        if pieces is None:
            return None
        return "".join([piece if isinstance(piece, str) else piece.text() for piece in pieces])
    except _NotAloneError:
        return None


def tokens_by_message(
    composition: Contents, template: object, kwargs: Mapping[str, Any], *, is_guarded: bool
) -> int | None:
    """Return the number of tokens of that text. Each stored message is counted once."""
    count_text = prompt_count(composition.counter)
    total = 0
    try:
        pieces = _pieces(composition, template, kwargs, is_guarded)
        if pieces is None:
            return None
        for piece in pieces:
            total += _count_once(count_text, piece) if isinstance(piece, str) else piece.tokens(count_text)
    except _NotAloneError:
        return None
    return total


@lru_cache(maxsize=MAX_CACHED)
def _count_once(count_text: Callable[[str], int], text: str) -> int:
    return count_text(text)


class _StoredText(NamedTuple):
    """Stored messages and the writer of their text."""

    messages: Conversation
    writer: _StoredWriter

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


def _pieces(
    composition: Contents, template: object, kwargs: Mapping[str, Any], is_guarded: bool
) -> list[str | _StoredText] | None:
    """Return the pieces of the text in order, or None if the messages cannot be written one at a time."""
    if not isinstance(template, RoleMarkerTemplate) or not template.is_message_by_message:
        return None
    options = tuple((name, kwargs[name]) for name in _TASK_OPTIONS if name in kwargs)
    try:
        frame = _frame(type(template), tuple(vars(template).items()), options, is_guarded)  # type: ignore[arg-type]
    except TypeError:  # a field cannot be hashed: it may have changed at the next turn
        return None
    talk, traffic, closing = composition.conversation, composition.intermediate, composition.closing
    is_closed = bool(closing.text)
    first = talk[0].role if talk else "user"
    last = traffic[-1].role if traffic and not is_closed else "user"
    if frame.has_token_over_blank_lines or not composition.sends_user or last == "assistant":
        return None
    if frame.open_pairs:
        roles = [*talk.derive(_role), "user", *traffic.derive(_role), *(["user"] if is_closed else [])]
        if not frame.open_pairs.isdisjoint(pairwise(roles)):
            return None
    head = _head(composition, frame.heads[first])
    if head is None or frame.could_end_in_token(last):
        return None
    words = words_of_tools(composition.tools)
    pieces: list[str | _StoredText] = [
        head,
        _StoredText(talk, _stored_writer(frame, words, False)),
        frame.user_text(composition.sections[1]),
    ]
    if traffic:
        pieces.append(_StoredText(traffic, _stored_writer(frame, words, not is_closed)))
        if is_closed:
            pieces.append(frame.user_text(composition.sections[2]))
    return [*pieces, frame.ending]


def _head(composition: Contents, writer: _HeadWriter) -> str | None:
    """Return the text before the conversation; it is kept with the tools, if there are any, or with the section.

    The section may belong to the layers, which outlive the tools of a context.
    """
    declared = composition.declarations
    section = composition.sections[0]
    if not composition.sends_system:
        return declared.derive(writer.with_tools)
    return declared.derive(writer.with_tools, section) if declared.tools else section.derive(writer.without_tools)


class _Frame:
    """Everything that a template writes around messages, and the places where it could complete a control token.

    Attributes:
        template: A private copy of the template.
        tokens: The control tokens; none if the text is not guarded.
        task: The options of the template.
        around_results: Text before and after neighbouring tool results.
        begins: Texts that may stand before a message, by role.
        ends: Texts that may stand after a message, by role.
        open_roles: Roles whose text may or may not start a line, depending on the text before it.
        open_pairs: Neighbouring roles whose messages could form a token together, or be written as one.
        heads: A writer of the text before the conversation, by the role of the first message.
        ending: Text that opens the reply.
    """

    def __init__(self, template: RoleMarkerTemplate, tokens: ControlTokens, task: Task) -> None:
        self.template = template
        self.tokens = tokens
        self.task = task
        self.around_results = template.results()
        self.has_token_over_blank_lines = any(SEPARATOR in token for token in tokens)
        self.ending = template.ending(task) if task.add_generation_prompt else ""
        self.begins: dict[str, set[str]] = {}
        self.ends: dict[str, set[str]] = {}
        self._add_edges()
        self.open_roles = {role for role, begins in self.begins.items() if tokens.words and _is_ambiguous(begins)}
        self.open_pairs = {pair for pair in product(self.begins, repeat=2) if self._is_open_pair(*pair)}
        self.heads = {role: _HeadWriter(self, role) for role in self.begins}
        self._pairs = frozenset(task.markers.values())
        self._user_starts_line = is_at_line_start(task.markers["user"][0])
        self._around_stand_in: dict[tuple[str, bool], tuple[str, str]] = {}

    def _add_edges(self) -> None:
        opening, closing = self.around_results
        for name, (begin, end) in self.task.markers.items():
            role = name.partition(" ")[0]
            begins, ends = self.begins.setdefault(role, set()), self.ends.setdefault(role, set())
            begins.add(begin)
            ends.add(end)
            if name == "tool":
                begins.add(opening + begin)
                ends.add(end + closing)

    def _is_open_pair(self, before: str, after: str) -> bool:
        if after in self.open_roles:
            return True
        return any(self.is_open(end + begin) for end, begin in product(self.ends[before], self.begins[after]))

    def is_open(self, text: str) -> bool:
        """Return True if a token could reach into `text` from one of its sides, or if the text is empty."""
        return not text or self.tokens.is_reached_from_left(text) or self.tokens.is_reached_from_right(text)

    def could_end_in_token(self, role: str) -> bool:
        """Return True if a token could end in the text after a last message of this role."""
        return any(self.tokens.is_reached_from_left(end + self.ending) for end in self.ends[role])

    def piece(self, turn: Turn, recent: bool) -> tuple[str, str, str]:
        """Return the text before a message, its own text, and the text after it.

        Raises:
            _NotAloneError: The text around the message depends on the message.
        """
        begin, text, end = self.template.piece(turn, self.task, recent)
        if (begin, end) not in self._pairs:
            raise _NotAloneError
        if self.template.rewrites_text and self.tokens and text.strip():
            place = turn["role"], recent
            if place not in self._around_stand_in:
                other: Turn = {"role": turn["role"], "content": STAND_IN}
                before, _, after = self.template.piece(other, self.task, recent)
                self._around_stand_in[place] = before, after
            if (begin, end) != self._around_stand_in[place]:
                raise _NotAloneError
        return begin, text, end

    def user_text(self, section: Section) -> str:
        """Return the text of a message of the user that prompts made."""
        content = self.section_text(section, starts_line=self._user_starts_line)
        begin, text, end = self.piece({"role": "user", "content": content}, recent=False)
        if text != content or begin != self.task.markers["user"][0]:
            raise _NotAloneError
        return f"{begin}{text}{end}"

    def section_text(self, section: Section, *, starts_line: bool) -> str:
        """Return the guarded text of a section; no token spans the blank lines between its prompts."""
        texts: list[str] = []
        for _, _, rendered in section.fragments:
            if rendered.text:
                # Bound methods are equal if they are of the same frame, so the result is kept with the rendering.
                guarded = self._text_at_line_start if starts_line else self._text_inside_line
                texts.append(rendered.derive(guarded))
                starts_line = True
        return SEPARATOR.join(texts)

    def _text_at_line_start(self, rendered: Rendered) -> str:
        return self._guarded(rendered, starts_line=True)

    def _text_inside_line(self, rendered: Rendered) -> str:
        return self._guarded(rendered, starts_line=False)

    def _guarded(self, rendered: Rendered, *, starts_line: bool) -> str:
        text = rendered.plain
        if not self.tokens.may_be_in(text):
            return text
        return broken_segments(rendered.segments(), self.tokens, starts_line=starts_line)


def _is_ambiguous(begins: set[str]) -> bool:
    return any(is_at_line_start(begin) and not is_at_line_start(f".{begin}") for begin in begins)


@lru_cache(maxsize=64)
def _frame(
    kind: type[RoleMarkerTemplate],
    fields: tuple[tuple[str, Any], ...],
    options: tuple[tuple[str, Any], ...],
    is_guarded: bool,
) -> _Frame:
    """Return the frame of a template with these fields."""
    template = kind.__new__(kind)  # a copy, because the fields of the original may be set at any time
    vars(template).update(fields)
    tokens = tokens_of(template) if is_guarded else control_tokens_of(())
    return _Frame(template, tokens, template.task(**dict(options)))


class _StoredWriter:
    """Writes stored messages as the template of a frame does. Its bound methods are keys of caches."""

    def __init__(self, frame: _Frame, words: frozenset[str], recent: bool) -> None:
        self.frame = frame
        self._recent = recent
        self._read = TreeReader(frame.tokens, words, is_split=bool(frame.tokens))
        self._counters: dict[Callable[[str], int], Callable[[Message], int]] = {}
        # The markers of each role, if the text between them never matters.
        self._markers = frame.task.markers if frame.template.signs == () else None

    def text(self, message: Message) -> str:
        """Return the text of a message with its control tokens broken.

        Raises:
            _NotAloneError: The text depends on other messages, or the template acts on the content of the message.
        """
        content, frame = message.content, self.frame
        if type(content) is not str or _has_more_than_text(message) or frame.tokens.may_be_in(content):
            return self._text_of_tree(message)
        if self._markers is not None:
            begin, end = self._markers[message.role]
            return f"{begin}{content}{end}"
        begin, text, end = frame.piece({"role": message.role, "content": content}, self._recent)
        if text != content and frame.tokens.may_be_in(text):
            raise _NotAloneError
        return f"{begin}{text}{end}"

    def counter(self, count_text: Callable[[str], int]) -> Callable[[Message], int]:
        """Return the function that counts the tokens of a message: the same function each time, as it is a key."""
        if count_text not in self._counters:
            self._counters[count_text] = partial(self._count, count_text)
        return self._counters[count_text]

    def _count(self, count_text: Callable[[str], int], message: Message) -> int:
        return count_text(self.text(message))

    def _text_of_tree(self, message: Message) -> str:
        tree = self._read.message(message)
        text = self._render(untagged(tree))
        if not self.frame.tokens:
            return text
        guarded = broken(self._render, tree, text, self.frame.tokens)
        if guarded is None:
            raise _NotAloneError
        return guarded

    def _render(self, tree: Tree) -> str:
        template = self.frame.template
        try:
            turns = read_turns([tree], template.title, template.roles)
        except ChatTemplateError as error:
            raise _NotAloneError from error
        if template.missing_places(turns, self.frame.task):
            raise _NotAloneError
        return "".join(self.frame.piece(turns[0], self._recent))


@lru_cache(maxsize=64)
def _stored_writer(frame: _Frame, words: frozenset[str], recent: bool) -> _StoredWriter:
    return _StoredWriter(frame, words, recent)


def _has_more_than_text(message: Message) -> bool:
    return bool(message.tool_calls or message.tool_call_id or message.name or message.thinking)


class _HeadWriter:
    """Writes the text before a conversation whose first message has one role. Its bound methods are keys of caches."""

    def __init__(self, frame: _Frame, first: str) -> None:
        self._frame = frame
        self._first = first

    def with_tools(self, declared: Declarations, section: Section | None = None) -> str | None:
        """Return the text of a system message and tools, or None if it cannot be written alone."""
        return self._text(section, declared.tools)

    def without_tools(self, section: Section) -> str | None:
        """Return the text of a system message, or None if it cannot be written alone."""
        return self._text(section, ())

    def _text(self, section: Section | None, tools: tuple[ToolSpec, ...]) -> str | None:
        frame = self._frame
        task = _with_tools(frame.task, tools)
        if task is None or self._first in frame.open_roles:
            return None
        if not all(tool.derive(is_harmless_tool, frame.tokens) for tool in tools):
            return None
        if tools and frame.template.missing_places([], task):
            return None
        return self._default_text(task) if section is None else self._section_text(section, task)

    def _default_text(self, task: Task) -> str | None:
        """Return the text without a system message; the template may write a default one."""
        if self._first == "system":
            return None
        pieces = self._frame.template.head([{"role": self._first, "content": ""}], task)
        text = "".join(pieces)
        begins = self._frame.begins[self._first]
        if self._lacks_border(pieces) or any(self._could_begin_token(text + begin) for begin in begins):
            return None
        return text

    def _section_text(self, section: Section, task: Task) -> str | None:
        frame = self._frame
        content, pieces = self._system_pieces(section, task, starts_line=True)
        if frame.tokens.words and not is_at_line_start("".join(pieces[:2])):
            content, pieces = self._system_pieces(section, task, starts_line=False)
        if len(pieces) < 4 or pieces[2] != content:
            return None
        before, after = "".join(pieces[:2]), "".join(pieces[3:])
        if self._could_begin_token(before) or self._lacks_border(pieces):
            return None
        if any(frame.is_open(after + begin) for begin in frame.begins[self._first]):
            return None
        return f"{before}{content}{after}"

    def _system_pieces(self, section: Section, task: Task, *, starts_line: bool) -> tuple[str, list[str]]:
        content = self._frame.section_text(section, starts_line=starts_line)
        return content, self._frame.template.head([{"role": "system", "content": content}], task)

    def _could_begin_token(self, text: str) -> bool:
        return self._frame.tokens.is_reached_from_right(text, is_start=True)

    def _lacks_border(self, pieces: Sequence[str]) -> bool:
        """Return True if the template puts a line break between the last piece and the first message."""
        return len(pieces) > 1 and not all(pieces[-1] or begin for begin in self._frame.begins[self._first])


def _with_tools(task: Task, tools: Sequence[ToolSpec]) -> Task | None:
    if not tools:
        return task
    try:
        functions = [tool.derive(_function) for tool in tools]
    except (TypeError, ValueError, RecursionError):  # `render` reports what is wrong with them
        return None
    return task._replace(tools=[function for function, _ in functions], tool_texts=[text for _, text in functions])


def _function(tool: ToolSpec) -> tuple[Any, str]:
    """Return the function of a tool as a request has it, and as JSON text."""
    function = tool.derive(openai_tool)["function"]
    return function, json.dumps(function, ensure_ascii=False, allow_nan=False)
