"""Text that a role-marker template writes around messages, and writers of single messages.

A frame is created once per template, options and set of control tokens. It contains the places where a control token
could be completed across messages. The bound methods of the frame and of its writers are cache keys of texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

from agentkit_prompts.chat_templates.chat_turns import read_turns
from agentkit_prompts.chat_templates.guard.control_tokens import (
    ControlTokens,
    control_tokens_of,
    is_at_line_start,
    tokens_of,
)
from agentkit_prompts.chat_templates.guard.taint_tracking import broken, broken_segments
from agentkit_prompts.chat_templates.guard.tainted_text import Tree, untagged
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task
from agentkit_prompts.composition.sections import SEPARATOR
from agentkit_prompts.composition.targets.chat_trees import TreeReader, is_harmless_tool
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.wire_tools import openai_tool
from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.limits import MAX_CACHED

if TYPE_CHECKING:
    from agentkit_prompts.composition.declarations import Declarations
    from agentkit_prompts.composition.sections import Section
    from agentkit_prompts.templates.rendered import Rendered

__all__ = ["Frame", "HeadWriter", "NotAloneError", "StoredWriter", "frame_of", "stored_writer"]


class NotAloneError(Exception):
    """A message whose text depends on other messages."""


class Frame:
    """Text that a template writes around messages, and the places where it could complete a control token.

    Attributes:
        template: A private copy of the template.
        tokens: The control tokens; empty if the text is not guarded.
        task: The options of the template.
        around_results: Text before and after neighbouring tool results.
        begins: Texts that can precede a message, by role.
        ends: Texts that can follow a message, by role.
        open_roles: Roles whose text starts a line only after some texts.
        open_pairs: Neighbouring roles whose messages could form a token together, or be merged.
        heads: Writer of the text before the conversation, by the role of the first message.
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
        self.heads = {role: HeadWriter(self, role) for role in self.begins}
        self._user_starts_line = is_at_line_start(task.markers["user"][0])

    def _add_edges(self) -> None:
        opening, closing = self.around_results
        for name, (begin, end) in self.task.markers.items():
            role = name.partition(" ")[0]
            begins, ends = self.begins.setdefault(role, set()), self.ends.setdefault(role, set())
            begins.add(begin)
            ends.add(end)
            # A result can be the first or the last result of its run.
            if name == "tool":
                begins.add(opening + begin)
                ends.add(end + closing)

    def _is_open_pair(self, before: str, after: str) -> bool:
        if after in self.open_roles:
            return True
        return any(self.is_open(end + begin) for end, begin in product(self.ends[before], self.begins[after]))

    def is_open(self, text: str) -> bool:
        """True if a token could extend into `text` from one of its sides, or if the text is empty."""
        return not text or self.tokens.is_reached_from_left(text) or self.tokens.is_reached_from_right(text)

    def could_end_in_token(self, role: str) -> bool:
        """True if a token could end in the text after a last message of this role."""
        return any(self.tokens.is_reached_from_left(end + self.ending) for end in self.ends[role])

    def user_text(self, section: Section) -> str:
        """Return the text of a user message rendered from prompts."""
        content = self.section_text(section, starts_line=self._user_starts_line)
        return "".join(self.template.piece({"role": "user", "content": content}, self.task))

    def section_text(self, section: Section, *, starts_line: bool) -> str:
        """Return the guarded text of a section; no token spans the blank lines between its prompts."""
        texts: list[str] = []
        for _, _, rendered in section.fragments:
            if rendered.text:
                # Bound methods of the same frame are equal, so the result is cached in the rendering.
                texts.append(rendered.derive(self._fragment_text, starts_line))
                starts_line = True
        return SEPARATOR.join(texts)

    def _fragment_text(self, rendered: Rendered, starts_line: bool) -> str:
        text = rendered.plain
        if not self.tokens.may_be_in(text):
            return text
        return broken_segments(rendered.segments(), self.tokens, starts_line=starts_line)


def _is_ambiguous(begins: set[str]) -> bool:
    return any(is_at_line_start(begin) and not is_at_line_start(f".{begin}") for begin in begins)


@lru_cache(maxsize=MAX_CACHED)
def frame_of(
    kind: type[RoleMarkerTemplate],
    fields: tuple[tuple[str, Any], ...],
    options: tuple[tuple[str, Any], ...],
    is_guarded: bool,
) -> Frame:
    """Return the frame of a template with these fields."""
    # A copy, because the fields of the original can be set at any time.
    template = kind.__new__(kind)
    vars(template).update(fields)
    tokens = tokens_of(template) if is_guarded else control_tokens_of(())
    return Frame(template, tokens, template.task(**dict(options)))


class StoredWriter:
    """Writer of stored messages in the template of a frame. Its bound methods are keys of caches."""

    def __init__(self, frame: Frame, words: frozenset[str], recent: bool) -> None:
        self.frame = frame
        self._recent = recent
        self._may_be_in = frame.tokens.may_be_in
        self._read = TreeReader(frame.tokens, words, is_split=bool(frame.tokens))
        self._counters: dict[Callable[[str], int], Callable[[Message], int]] = {}
        # Markers of each role, if the template writes them independently of the text between them.
        self._markers = frame.task.markers if frame.template.signs == () else None

    def text(self, message: Message) -> str:
        """Return the text of a message with its control tokens broken.

        Raises:
            NotAloneError: The template cannot write the message, or its markers depend on the content.
        """
        content, frame = message.content, self.frame
        # A separate function would be slower, and this runs for every message of a new conversation.
        has_more = message.tool_calls or message.tool_call_id or message.name or message.thinking
        if has_more or type(content) is not str or self._may_be_in(content):
            return self._text_of_tree(message)
        if self._markers is not None:
            begin, end = self._markers[message.role]
            return f"{begin}{content}{end}"
        begin, text, end = frame.template.piece({"role": message.role, "content": content}, frame.task, self._recent)
        # The template writes text around parts of the message, so these borders are checked, too.
        if text != content:
            return self._text_of_tree(message)
        return f"{begin}{text}{end}"

    def counter(self, count_text: Callable[[str], int]) -> Callable[[Message], int]:
        """Return the function that counts the tokens of a message: the same function each time, as it is a cache
        key.
        """
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
            raise NotAloneError
        return guarded

    def _render(self, tree: Tree) -> str:
        template = self.frame.template
        try:
            turns = read_turns([tree], template.title, template.roles)
        except ChatTemplateError as error:
            raise NotAloneError from error
        if template.missing_places(turns, self.frame.task):
            raise NotAloneError
        return "".join(template.piece(turns[0], self.frame.task, self._recent))


@lru_cache(maxsize=MAX_CACHED)
def stored_writer(frame: Frame, words: frozenset[str], recent: bool) -> StoredWriter:
    """Return the writer of stored messages: the same for the same arguments, as it is a key of caches."""
    return StoredWriter(frame, words, recent)


class HeadWriter:
    """Writer of the text before a conversation whose first message has a certain role. Its bound methods are keys of
    caches.
    """

    def __init__(self, frame: Frame, first: str) -> None:
        self._frame = frame
        self._first = first

    def with_tools(self, declared: Declarations, section: Section | None = None) -> str | None:
        """Return the text of a system message and tools, or None if the text depends on other messages."""
        return self._text(section, declared.tools)

    def without_tools(self, section: Section) -> str | None:
        """Return the text of a system message, or None if the text depends on other messages."""
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
        # The text before the content decides if the content starts a line, so the content is rendered again if
        # necessary.
        content, pieces = self._system_pieces(section, task, starts_line=True)
        if frame.tokens.words and not is_at_line_start("".join(pieces[:2])):
            content, pieces = self._system_pieces(section, task, starts_line=False)
        if len(pieces) < 4 or pieces[2] != content:
            return None
        before, after = "".join(pieces[:2]), "".join(pieces[3:])
        if self._could_begin_token(before) or self._lacks_border(pieces) or self._is_open(after):
            return None
        return f"{before}{content}{after}"

    def _is_open(self, after: str) -> bool:
        """True if a token could cross the border between the system message and the first message."""
        return any(self._frame.is_open(after + begin) for begin in self._frame.begins[self._first])

    def _system_pieces(self, section: Section, task: Task, *, starts_line: bool) -> tuple[str, list[str]]:
        content = self._frame.section_text(section, starts_line=starts_line)
        return content, self._frame.template.head([{"role": "system", "content": content}], task)

    def _could_begin_token(self, text: str) -> bool:
        return self._frame.tokens.is_reached_from_right(text, is_start=True)

    def _lacks_border(self, pieces: Sequence[str]) -> bool:
        """True if the template puts a line break between the last piece and the first message."""
        return len(pieces) > 1 and not all(pieces[-1] or begin for begin in self._frame.begins[self._first])


def _with_tools(task: Task, tools: Sequence[ToolSpec]) -> Task | None:
    if not tools:
        return task
    try:
        functions = [tool.derive(_function) for tool in tools]
    except (TypeError, ValueError, RecursionError):  # `render` reports the error
        return None
    return task._replace(tools=[function for function, _ in functions], tool_texts=[text for _, text in functions])


def _function(tool: ToolSpec) -> tuple[Any, str]:
    """Return the function of a tool as a request has it, and as JSON text."""
    function = tool.derive(openai_tool)["function"]
    return function, json.dumps(function, ensure_ascii=False, allow_nan=False)
