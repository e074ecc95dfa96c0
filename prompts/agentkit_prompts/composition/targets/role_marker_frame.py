"""Text that a role-marker template writes around messages, and writers of single messages.

A frame is created once for a template, its options and its control tokens. The frame shows if a control token could
span two messages, which then cannot be written separately. Conversations and renderings cache texts under the bound
methods of the frame and of its writers.
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
    from agentkit_prompts.composition.sections import Section
    from agentkit_prompts.composition.tools_and_output import ToolsAndOutput
    from agentkit_prompts.templates.rendered import Rendered


class DependentMessageError(Exception):
    """Messages cannot be written one at a time, because the text of a message depends on other messages."""


class Frame:
    """Text that a template writes around messages, and the borders at which that text could complete a control token.

    Attributes:
        template: A private copy of the template.
        tokens: The control tokens; empty if the text is not guarded.
        task: The options of the template.
        around_results: Text before the first and after the last of neighbouring tool results.
        has_token_over_blank_lines: True if a control token contains the separator of prompts.
        begins: Texts that can precede the content of a message, by role.
        ends: Texts that can follow the content of a message, by role.
        open_roles: Roles whose content starts a line or not, depending on the text before the message.
        open_pairs: Roles of two neighbouring messages that could form a token together, or that would be merged.
        heads: Writers of the text before the conversation, by the role of the first message after that text.
        ending: Text that opens the reply; empty without a generation prompt.
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
            # Only the first and the last of neighbouring results have this text around them.
            if name == "tool":
                begins.add(opening + begin)
                ends.add(end + closing)

    def _is_open_pair(self, before: str, after: str) -> bool:
        if after in self.open_roles:
            return True
        return any(self.is_open(end + begin) for end, begin in product(self.ends[before], self.begins[after]))

    def is_open(self, text: str) -> bool:
        """True if `text` is empty, or a token could start before `text` or end after it."""
        return not text or self.tokens.is_reached_from_left(text) or self.tokens.is_reached_from_right(text)

    def could_end_in_token(self, role: str) -> bool:
        """True if the content of a last message of this role could start a token that ends in the text after it."""
        return any(self.tokens.is_reached_from_left(end + self.ending) for end in self.ends[role])

    def user_text(self, section: Section) -> str:
        """Return the text of a user message rendered from prompts."""
        content = self.section_text(section, starts_line=self._user_starts_line)
        return "".join(self.template.piece({"role": "user", "content": content}, self.task))

    def section_text(self, section: Section, *, starts_line: bool) -> str:
        """Return the guarded text of a section.

        Each prompt is guarded separately: the caller has checked that no token spans the blank lines between prompts.
        """
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
    template_class: type[RoleMarkerTemplate],
    fields: tuple[tuple[str, Any], ...],
    options: tuple[tuple[str, Any], ...],
    is_guarded: bool,
) -> Frame:
    """Return the frame of a template: the same object for equal arguments."""
    # A copy, because the fields of the original template can be set at any time.
    template = template_class.__new__(template_class)
    vars(template).update(fields)
    tokens = tokens_of(template) if is_guarded else control_tokens_of(())
    return Frame(template, tokens, template.task(**dict(options)))


class StoredWriter:
    """Writer of stored messages in the template of a frame. Its bound methods are cache keys.

    Args:
        frame: The frame.
        words: Names of tools and parameters that the developer wrote; they are trusted.
        recent: True if no user message follows the messages.
    """

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
            DependentMessageError: The template cannot write the message, or its markers depend on the content.
        """
        content, frame = message.content, self.frame
        # The conditions are inline, because the call of a function would be slower for every message of a new
        # conversation.
        has_more = message.tool_calls or message.tool_call_id or message.name or message.thinking
        if has_more or type(content) is not str or self._may_be_in(content):
            return self._text_of_tree(message)
        if self._markers is not None:
            begin, end = self._markers[message.role]
            return f"{begin}{content}{end}"
        begin, text, end = frame.template.piece({"role": message.role, "content": content}, frame.task, self._recent)
        # The template changed the content, so control tokens are searched in its result.
        if text != content:
            return self._text_of_tree(message)
        return f"{begin}{text}{end}"

    def counter(self, count_text: Callable[[str], int]) -> Callable[[Message], int]:
        """Return the function that counts the tokens of a message: always the same object, because it is a cache
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
            raise DependentMessageError
        return guarded

    def _render(self, tree: Tree) -> str:
        template = self.frame.template
        try:
            turns = read_turns([tree], template.title, template.roles)
        except ChatTemplateError as error:
            raise DependentMessageError from error
        if template.missing_places(turns, self.frame.task) or template.lost(turns, self.frame.task):
            raise DependentMessageError
        return "".join(template.piece(turns[0], self.frame.task, self._recent))


@lru_cache(maxsize=MAX_CACHED)
def stored_writer(frame: Frame, words: frozenset[str], recent: bool) -> StoredWriter:
    """Return the `StoredWriter` of these arguments: always the same object, because it is a part of cache keys."""
    return StoredWriter(frame, words, recent)


class HeadWriter:
    """Writer of the text before a conversation whose first message has the role `first`. Its bound methods are cache
    keys.
    """

    def __init__(self, frame: Frame, first: str) -> None:
        self._frame = frame
        self._first = first

    def with_tools(self, tools_and_output: ToolsAndOutput, section: Section | None = None) -> str | None:
        """Return the text of a system message and tools, or None if the text depends on other messages."""
        return self._text(section, tools_and_output.tools)

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
        if tools and (frame.template.is_custom or frame.template.missing_places([], task)):
            return None
        return self._default_text(task) if section is None else self._section_text(section, task)

    def _default_text(self, task: Task) -> str | None:
        """Return the text without a system message: the template may write a default system message."""
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
        # Some tokens are broken only at the start of a line. The text before the content is known only after writing,
        # so the content is guarded again if it does not start a line.
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
        """True if the text before the conversation and the text before its first message can both be empty.

        The template then writes a line break between them, which depends on the first message.
        """
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
    """Return the `function` of a tool in a chat-completions request, as data and as JSON text."""
    function = tool.derive(openai_tool)["function"]
    return function, json.dumps(function, ensure_ascii=False, allow_nan=False)
