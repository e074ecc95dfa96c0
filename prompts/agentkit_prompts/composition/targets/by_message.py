"""A composition as a template writes it that takes each message on its own: what is written is known per message.

The text of a stored message, its control tokens broken, is kept with its conversation, that of a prompt with its
rendering. Joined they are what `chat_text` writes as a whole; where that is not certain, nothing is returned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from agentkit_prompts.chat_templates.chat_turns import Turn, read_turns
from agentkit_prompts.chat_templates.guard.control_tokens import (
    ControlTokens,
    control_tokens_of,
    is_at_line_start,
    tokens_of,
)
from agentkit_prompts.chat_templates.guard.stand_ins import STAND_IN
from agentkit_prompts.chat_templates.guard.taint_tracking import broken, broken_runs
from agentkit_prompts.chat_templates.guard.tainted_text import Tree, untagged
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task, runs_of_results
from agentkit_prompts.composition.contents import Contents
from agentkit_prompts.composition.sections import SEPARATOR
from agentkit_prompts.composition.targets.chat_trees import TreeReader, is_harmless_tool, runs_of, words_of_tools
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.wire_tools import openai_tool
from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.tokens.counter import prompt_count

if TYPE_CHECKING:
    from agentkit_prompts.composition.declarations import Declarations
    from agentkit_prompts.composition.sections import Section
    from agentkit_prompts.context.conversation import Conversation
    from agentkit_prompts.templates.rendered import Rendered

__all__ = ["text_by_message", "tokens_by_message"]

T = TypeVar("T")

_role = attrgetter("role")


_TASK = ("add_generation_prompt", "sequence_start", "enable_thinking")


class _EntangledError(Exception):
    """The text of the whole may differ from the joined texts of its messages."""


def text_by_message(
    composition: Contents, template: object, kwargs: Mapping[str, Any], *, is_guarded: bool
) -> str | None:
    """Return the text of a composition; if it `is_guarded`, with the control tokens broken in what is untrusted.

    None where the template looks at more than one message, or messages could form a control token together.

    Args:
        composition: What is written.
        template: The chat template.
        kwargs: Those of `RoleMarkerTemplate.task`; others are for other templates.
        is_guarded: Whether untrusted text must not form control tokens.
    """
    return _by_message(composition, template, kwargs, is_guarded, _text_of)


def tokens_by_message(
    composition: Contents, template: object, kwargs: Mapping[str, Any], *, is_guarded: bool
) -> int | None:
    """Return how many tokens that text has, counted message by message and those of the conversation once."""
    count_text = prompt_count(composition.counter)

    def count(pieces: Iterator[str | _Head | _Written]) -> int:
        return sum(count_text(piece) if isinstance(piece, str) else piece.tokens(count_text) for piece in pieces)

    return _by_message(composition, template, kwargs, is_guarded, count)


def _by_message(
    composition: Contents,
    template: object,
    kwargs: Mapping[str, Any],
    is_guarded: bool,
    put_together: Callable[[Iterator[str | _Head | _Written]], T],
) -> T | None:
    if not isinstance(template, RoleMarkerTemplate) or not template.is_message_by_message:
        return None
    task = tuple((name, kwargs[name]) for name in _TASK if name in kwargs)
    try:
        frame = _frame(type(template), tuple(vars(template).items()), task, is_guarded)  # type: ignore[arg-type]
    except TypeError:  # a field is no value: it may be another one at the next turn
        return None
    try:
        return put_together(_pieces(composition, frame))
    except _EntangledError:
        return None


def _text_of(pieces: Iterator[str | _Head | _Written]) -> str:
    return "".join([piece if isinstance(piece, str) else piece.text() for piece in pieces])


class _Frame:
    """What a template writes around any messages, and where that could complete a control token.

    Attributes:
        edges: What may stand before and behind a message, by role.
        open_pairs: Neighbouring roles whose messages could form a token together, or be written as one.
        open_roles: Roles of which it is not known whether their text starts a line.
        plain: What stands around the text of each role, where the text of a message is never looked into.
    """

    def __init__(self, template: RoleMarkerTemplate, tokens: ControlTokens, task: Task) -> None:
        self.template = template
        self.tokens = tokens
        self.task = task
        self.may_be_in = tokens.may_be_in
        self.plain = task.markers if template.signs == () else None
        self.ending = template.ending(task) if task.add_generation_prompt else ""
        self.pairs = frozenset(task.markers.values())
        self.starts_line = is_at_line_start(task.markers["user"][0])
        self.write_prompt = {starts: _PromptWriter(tokens, starts) for starts in (False, True)}
        self.around: dict[tuple[str, bool], tuple[str, str]] = {}
        """What a class that `rewrites_text` writes before and behind a text of no meaning, by role and place."""
        self.is_usable = not any(SEPARATOR in token for token in tokens)
        opening, closing = template.results()
        self.edges: dict[str, tuple[set[str], set[str]]] = {}
        for name, (begin, end) in task.markers.items():
            begins, ends = self.edges.setdefault(name.partition(" ")[0], (set(), set()))
            begins.add(begin)
            ends.add(end)
            if name == "tool":
                begins.add(opening + begin)
                ends.add(end + closing)
        self.open_roles = {
            role
            for role, (begins, _) in self.edges.items()
            if tokens.words and any(is_at_line_start(begin) and not is_at_line_start(f".{begin}") for begin in begins)
        }
        self.open_pairs = frozenset(
            (before, after)
            for before, after in product(self.edges, repeat=2)
            if after in self.open_roles
            or any(self.is_open(end + begin) for end, begin in product(self.edges[before][1], self.edges[after][0]))
        )

    def is_open(self, text: str) -> bool:
        """Whether a token could reach into `text` from one of its sides, or there is no text."""
        return not text or self.tokens.is_reached_from_left(text) or self.tokens.is_reached_from_right(text)

    def piece(self, turn: Turn, recent: bool) -> tuple[str, str, str]:
        """Return a message in three as the template writes it."""
        begin, text, end = self.template.piece(turn, self.task, recent)
        if (begin, end) not in self.pairs:
            raise _EntangledError
        if self.template.rewrites_text and self.tokens and text.strip():
            place = turn["role"], recent
            if place not in self.around:
                other: Turn = {"role": turn["role"], "content": STAND_IN}
                before, _, behind = self.template.piece(other, self.task, recent)
                self.around[place] = before, behind
            if (begin, end) != self.around[place]:
                raise _EntangledError
        return begin, text, end


@lru_cache(maxsize=64)
def _frame(
    kind: type[RoleMarkerTemplate],
    fields: tuple[tuple[str, Any], ...],
    task: tuple[tuple[str, Any], ...],
    is_guarded: bool,
) -> _Frame:
    """Return the frame of a template with these fields: one of its own, so that it stays what it is."""
    template = kind.__new__(kind)
    vars(template).update(fields)
    tokens = tokens_of(template) if is_guarded else control_tokens_of(())
    return _Frame(template, tokens, template.task(**dict(task)))


@dataclass(frozen=True, slots=True)
class _MessageWriter:
    """Writes a stored message as the template does."""

    frame: _Frame
    read: TreeReader
    recent: bool

    def __call__(self, message: Message) -> str:
        content, frame = message.content, self.frame
        if (
            type(content) is str
            and not (message.tool_calls or message.tool_call_id or message.name or message.thinking)
            and not frame.may_be_in(content)
        ):
            if frame.plain is not None:
                begin, end = frame.plain[message.role]
                return f"{begin}{content}{end}"
            begin, text, end = frame.piece({"role": message.role, "content": content}, self.recent)
            if text is not content and frame.may_be_in(text):
                raise _EntangledError  # the template made a token of it
            return f"{begin}{text}{end}"
        tree = self.read.message(message)
        text = self._write(untagged(tree))
        safe = broken(self._write, tree, text, frame.tokens) if frame.tokens else text
        if safe is None:
            raise _EntangledError
        return safe

    def _write(self, tree: Tree) -> str:
        template = self.frame.template
        try:
            turns = read_turns([tree], type(template).__name__, template.roles)
        except ChatTemplateError as error:
            raise _EntangledError from error
        if template.missing_places(turns, self.frame.task):
            raise _EntangledError
        return "".join(self.frame.piece(turns[0], self.recent))


@dataclass(frozen=True, slots=True, eq=False)
class _PromptWriter:
    """Writes the rendering of a prompt; there is one for each frame and place, known again by identity."""

    tokens: ControlTokens
    starts_line: bool

    def __call__(self, rendered: Rendered) -> str:
        text = rendered.plain
        if rendered.is_trusted or not self.tokens.may_be_in(text):
            return text
        return broken_runs(list(runs_of(rendered.segments())), self.tokens, starts_line=self.starts_line)


def _pieces(composition: Contents, frame: _Frame) -> Iterator[str | _Head | _Written]:
    talk, traffic, closing = composition.conversation, composition.intermediate, composition.closing
    roles = [*talk.derive(_role), "user", *traffic.derive(_role), *(("user",) if closing.text else ())]
    if not (frame.is_usable and composition.sends_user) or roles[-1] == "assistant":
        raise _EntangledError
    if frame.open_pairs and not frame.open_pairs.isdisjoint(pairwise(roles)):
        raise _EntangledError
    read = TreeReader(frame.tokens, words_of_tools(composition.tools), is_split=bool(frame.tokens))
    system = composition.sections[0] if composition.sends_system else None
    yield _Head(system, _SystemWriter(frame, roles[0]), composition.declarations)
    yield _Written(talk, _MessageWriter(frame, read, recent=False))
    yield _section(composition.sections[1], frame)
    if traffic:
        yield _Written(traffic, _MessageWriter(frame, read, recent=not closing.text))
        if closing.text:
            yield _section(composition.sections[2], frame)
    if any(frame.tokens.is_reached_from_left(end + frame.ending) for end in frame.edges[roles[-1]][1]):
        raise _EntangledError
    yield frame.ending


@dataclass(frozen=True, slots=True)
class _SystemWriter:
    """Writes what stands before the conversation, whose first message has the role `first`: the system message."""

    frame: _Frame
    first: str

    def __call__(self, section: Section | None, tools: tuple[ToolSpec, ...]) -> str:
        """Return the text; without a section that of the template's own system message, if it has one."""
        frame, first = self.frame, self.first
        template, tokens = frame.template, frame.tokens
        task = _with_tools(frame.task, tools) if tools else frame.task
        begins = frame.edges[first][0]
        if not all(tool.derive(is_harmless_tool, tokens) for tool in tools):
            raise _EntangledError
        if first in frame.open_roles or (tools and template.missing_places([], task)):
            raise _EntangledError
        if section is None:
            if first == "system":
                raise _EntangledError
            pieces = template.head([{"role": first, "content": ""}], task)
            text = "".join(pieces)
            self._check_before(*(text + begin for begin in begins))
        else:
            content = _content(section, frame, starts_line=True)
            pieces = template.head([{"role": "system", "content": content}], task)
            before = "".join(pieces[:2])
            if tokens.words and not is_at_line_start(before):
                content = _content(section, frame, starts_line=False)
                pieces = template.head([{"role": "system", "content": content}], task)
            behind = "".join(pieces[3:])
            if len(pieces) < 4 or pieces[2] is not content or any(frame.is_open(behind + begin) for begin in begins):
                raise _EntangledError
            self._check_before(before)
            text = f"{before}{content}{behind}"
        if len(pieces) > 1 and not all(pieces[-1] or begin for begin in begins):  # a line break goes there
            raise _EntangledError
        return text

    def _check_before(self, *texts: str) -> None:
        tokens = self.frame.tokens
        if any(tokens.is_reached_from_right(text, is_start=True) for text in texts):
            raise _EntangledError


def _with_tools(task: Task, tools: Sequence[ToolSpec]) -> Task:
    try:
        functions = [tool.derive(_function) for tool in tools]
    except (TypeError, ValueError, RecursionError) as error:  # `render` reports what is wrong with them
        raise _EntangledError from error
    return task._replace(tools=[each for each, _ in functions], tool_texts=[text for _, text in functions])


def _function(tool: ToolSpec) -> tuple[Any, str]:
    """Return the function of a tool as a request has it, and as JSON text."""
    function = tool.derive(openai_tool)["function"]
    return function, json.dumps(function, ensure_ascii=False, allow_nan=False)


def _section(section: Section, frame: _Frame) -> str:
    """Return the text of a message of the user that prompts made."""
    content = _content(section, frame, starts_line=frame.starts_line)
    begin, text, end = frame.piece({"role": "user", "content": content}, recent=False)
    if text is not content or begin != frame.task.markers["user"][0]:
        raise _EntangledError
    return f"{begin}{text}{end}"


def _content(section: Section, frame: _Frame, *, starts_line: bool) -> str:
    """Return the text of a section; no token goes over the blank lines between its prompts."""
    texts: list[str] = []
    for _, _, rendered, _ in section.fragments:
        if rendered.text:
            texts.append(rendered.derive(frame.write_prompt[starts_line]))
            starts_line = True
    return SEPARATOR.join(texts)


@dataclass(frozen=True, slots=True)
class _Head:
    """What stands before the conversation, and what writes it."""

    section: Section | None
    writer: _SystemWriter
    declared: Declarations

    def text(self) -> str:
        """Return the text, which is written once."""
        return self._once(self.writer)

    def tokens(self, count_text: Callable[[str], int]) -> int:
        """Count the text, once."""
        return self._once(_Counted(self.writer, count_text))

    def _once(self, write: Callable[[Section | None, tuple[ToolSpec, ...]], T]) -> T:
        """Return what is made of the section and the tools; it is kept with the tools where there are any.

        A section of fixed text belongs to the layers, which outlive the tools of a context.
        """
        section, tools = self.section, self.declared.tools
        if section is None:
            return write(None, tools)
        return self.declared.derive(_OfTools(write), section) if tools else section.derive(write, tools)


@dataclass(frozen=True, slots=True)
class _OfTools:
    """Makes something of declared tools and a section. Those that do so alike are equal."""

    write: Callable[[Section, tuple[ToolSpec, ...]], Any]

    def __call__(self, declared: Declarations, section: Section) -> Any:
        return self.write(section, declared.tools)


@dataclass(frozen=True, slots=True)
class _Written:
    """Stored messages, and what writes them."""

    messages: Conversation
    writer: _MessageWriter

    def text(self) -> str:
        """Return them as one text."""
        opening, closing = self.writer.frame.template.results()
        runs = self._runs()
        if not runs:
            return self.messages.joined(self.writer, "")
        texts = list(self.messages.derive(self.writer))
        for first, last in runs:
            texts[first] = opening + texts[first]
            texts[last] += closing
        return "".join(texts)

    def tokens(self, count_text: Callable[[str], int]) -> int:
        """Count the text; what a message has is kept with its conversation."""
        total = self.messages.total(_Counted(self.writer, count_text))
        if runs := self._runs():
            total += len(runs) * sum(map(count_text, self.writer.frame.template.results()))
        return total

    def _runs(self) -> list[tuple[int, int]]:
        """Return where results stand, if the template writes anything around those that follow each other."""
        if not any(self.writer.frame.template.results()):
            return []
        roles = self.messages.derive(_role)
        return runs_of_results(roles) if "tool" in roles else []


@dataclass(frozen=True, slots=True)
class _Counted:
    """Counts what a writer writes. Those of the same writer and counter are equal."""

    write: Callable[..., str]
    count: Callable[[str], int]

    def __call__(self, *given: Any) -> int:
        return self.count(self.write(*given))
