"""`why`: the place of a prompt, or of a value of the context, in a composition, or the reason for its absence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from agentkit_prompts.composition.context_path import (
    ABSENT,
    KWARGS,
    Advice,
    ContextPath,
    advice_for,
    parse_path,
    paths_of,
)
from agentkit_prompts.composition.explain import layer_table
from agentkit_prompts.composition.rows import HistoryRow, is_inside, rows_of
from agentkit_prompts.composition.trims import Trim
from agentkit_prompts.context.items import Document, Fact
from agentkit_prompts.context.prompt_context import CONTEXT_NAMES
from agentkit_prompts.context.skill import Skill
from agentkit_prompts.errors import PromptError
from agentkit_prompts.limits import MAX_SHOWN_CHARS
from agentkit_prompts.names import nearest, similar
from agentkit_prompts.templates.spans import Span
from agentkit_prompts.tokens.counter import message_tokens
from agentkit_prompts.tree.examples import ExamplesPrompt, StaticSelector
from agentkit_prompts.tree.layers import PLACES
from agentkit_prompts.tree.prompt import BasePrompt, has_own_code, render_prompt

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent

WhyStatus: TypeAlias = Literal["shown", "sent", "cut", "empty", "unread", "unknown"]
_REASONS: Mapping[WhyStatus, str] = {
    "shown": "shown {}",
    "sent": "sent {}, outside of the text of the messages",
    "cut": "not sent: {}",
    "empty": "not sent: {} is empty",
    "unread": "not sent: {}",
    "unknown": "unknown: {}",
}


@dataclass(frozen=True, slots=True)
class Why:
    """The place of the content at a pointer: a prompt, a value of the context, or another row of the layer table."""

    pointer: str
    spans: tuple[Span, ...]
    """All spans of the messages that show the content."""
    reason: str
    """The prompts that show the content, or the reason for its absence."""
    status: WhyStatus
    """`shown` in a message; `sent` outside of the text of the messages; `cut` by a budget; `empty`; `unread` if no
    prompt reads the content, or if it belongs to incomplete tool calls; `unknown` if a prompt reads the content, but no
    span shows it unchanged."""

    def __str__(self) -> str:
        return f"{self.pointer}: {self.reason}"


class _Shown(NamedTuple):
    """A span, and the paths of the context values that the span shows."""

    span: Span
    paths: tuple[ContextPath, ...]


def why(composition: CallContent, pointer: str) -> Why:
    """Explain the place of the content at a pointer, or its absence; see `Composition.why`.

    Raises:
        PromptError: The pointer is not text, or is unknown.
    """
    if not isinstance(pointer, str):
        received = type(pointer).__name__
        raise PromptError(
            f"why: expected a path such as 'documents[0]', got {received}", name="pointer", value=received
        )
    question = _Question(composition, pointer)
    answer = question.answer()
    if answer is not None:
        return answer
    name, advice = pointer[:MAX_SHOWN_CHARS], question.advice()
    raise PromptError(f"why: unknown path {name!r}{advice.text}", name=name, suggestion=advice.suggestion)


def _why(pointer: str, status: WhyStatus, subject: str, spans: Sequence[Span] = ()) -> Why:
    return Why(pointer, tuple(spans), _REASONS[status].format(subject), status)


class _Question:
    """Search for one pointer. An `_about_*` method returns None if it does not handle the pointer."""

    def __init__(self, composition: CallContent, pointer: str) -> None:
        self.composition = composition
        self.pointer = pointer
        self.path = parse_path(pointer)
        self.prompts = dict(composition.layers.walk())
        self.spans = composition.spans

    def answer(self) -> Why | None:
        """Return the explanation for a value of the context, a prompt, or another row of the layer table; None if the
        pointer is unknown.
        """
        if self.path is not None and self.path.root in CONTEXT_NAMES:
            return self._about_context(self.path) or self._about_row()
        answer = self._about_prompts() or self._about_row() or self._about_source()
        if answer is not None or self.path is None:
            return answer
        # `AdditionalInfoPrompt` reads a kwarg by its name alone.
        if self.path.root in self._kwargs_read:
            return self._about_context(ContextPath((KWARGS, *self.path)))
        return self._about_context(self.path)

    def _why(self, status: WhyStatus, subject: str, spans: Sequence[Span] = ()) -> Why:
        return _why(self.pointer, status, subject, spans)

    # --- prompts and rows of the table

    def _about_prompts(self) -> Why | None:
        """Explain the prompts at a place of the layers, or the prompts with this path, name or file."""
        name = self.pointer
        if name in self.prompts:
            return self._about_prompt(name)
        paths = self._paths_of_prompts(name)
        if not paths and name in PLACES:
            return self._why("empty", name)
        if not paths:
            return None
        return self._about_all(paths, self._spans_inside(name, *paths))

    def _about_all(self, paths: Sequence[str], spans: tuple[Span, ...]) -> Why:
        """Explain several prompts, whose text is in `spans`."""
        answers = [self._about_prompt(path) for path in paths]
        status = answers[0].status
        if spans:
            status = "shown"
        return Why(self.pointer, spans, "; ".join(map(str, answers)), status)

    def _paths_of_prompts(self, name: str) -> list[str]:
        """Return the paths of the prompts at a place of the layers, or of the prompts with a name or file."""
        if name in PLACES:
            return [path for path, _ in self.composition.layers.prompts(name)]
        return [path for path, prompt in self.prompts.items() if name and name in (prompt.label, prompt.template.file)]

    def _about_prompt(self, path: str) -> Why:
        spans = self._spans_inside(path)
        trim_reasons = [trim.why for layer, trim in self.composition.trims.items() if is_inside(path, layer)]
        if spans:
            return _why(path, "shown", "; ".join([self._description_of(spans), *trim_reasons]), spans)
        if trim_reasons:
            return _why(path, "cut", trim_reasons[0])
        if path.startswith("after_intermediate") and not len(self.composition.intermediate):
            return _why(path, "empty", "the tool traffic of this turn")
        outer = path.rpartition(".")[0]
        if outer and self._has_text(self.prompts[path]):
            return _why(path, "unknown", f"{outer} changes it, or leaves it out")
        return _why(path, "empty", "its text")

    def _description_of(self, spans: Sequence[Span]) -> str:
        where = self._describe_messages({span.message for span in spans})
        size = sum(len(span.text) for span in spans)
        return f"in {where}, {size} characters; {_trust(spans)}"

    def _spans_inside(self, *paths: str) -> tuple[Span, ...]:
        return tuple([span for span in self.spans if any(is_inside(span.prompt, path) for path in paths)])

    def _has_text(self, prompt: BasePrompt) -> bool:
        try:
            return bool(render_prompt(prompt, self.composition.context).text)
        except PromptError:
            return True

    def _about_row(self) -> Why | None:
        """Explain a row of the layer table that is neither a prompt nor a value of the context, such as `overhead`."""
        for row in layer_table(self.composition):
            if row.layer == self.pointer:
                return self._why("sent", f"as {row.prompt}, {row.tokens} tokens")
        return None

    def _about_source(self) -> Why | None:
        """Explain the items of the context whose label or source is the pointer."""
        view = self.composition.context.view
        paths = [
            ContextPath((name, index))
            for name in ("documents", "knowledge", "skills")
            for index, item in enumerate(view[name])
            if self.pointer and self.pointer in (getattr(item, "label", ""), item.source)
        ]
        answers = [answer for path in paths if (answer := _Question(self.composition, str(path)).answer())]
        if len(answers) < 2:
            return next(iter(answers), None)
        spans = [span for answer in answers for span in answer.spans]
        status = "shown" if spans else answers[0].status
        return Why(self.pointer, tuple(spans), "; ".join(map(str, answers)), status)

    def _describe_messages(self, numbers: Iterable[int]) -> str:
        messages = [f"message {number} ({self.composition.messages[number].role})" for number in sorted(numbers)]
        if len(messages) > 3:
            return f"{len(messages)} messages"
        return ", ".join(messages)

    # --- the context

    def _about_context(self, path: ContextPath) -> Why | None:
        """Explain a value of the context; return None if the context has no value at the path."""
        view = self.composition.context.view
        spans = self._spans_in(path)
        is_kwarg = path.root == KWARGS and len(path) == 2 and path[1] in self._kwargs_read
        if not spans and not is_kwarg and path.value(view) is ABSENT:
            return None
        answer = (
            self._cleared_answer(path, spans)
            or self._shown_answer(path, spans)
            or self._sent_answer(path)
            or self._own_examples_answer(path)
            or self._unsent_answer(path)
        )
        return replace(answer, reason=f"{answer.reason}{_source_of(path.upto(2).value(view))}")

    def _cleared_answer(self, path: ContextPath, spans: Sequence[Span]) -> Why | None:
        """Explain a tool result that was cleared, whose placeholder has `spans`; None for any other value."""
        if self.composition.context.clearing is None or not spans or len(path) == 1:
            return None
        from agentkit_prompts.composition.cleared_results import cleared_in_row

        for row in rows_of(self.composition):
            if isinstance(row, HistoryRow) and row.layer == path.root:
                message = cleared_in_row(self.composition, row).get(cast("int", path[1]))
                if message is not None:
                    tokens = message_tokens(self.composition.counter)(message)
                    reason = f"as a placeholder: the result of {message.name}, {tokens:,} tokens, was cleared"
                    return self._why("shown", reason, spans)
        return None

    def _spans_in(self, path: ContextPath) -> list[Span]:
        """Return the spans that show the value at a path, or a part of it."""
        return [entry.span for entry in self._shown if any(shown_path.is_below(path) for shown_path in entry.paths)]

    def _shown_answer(self, path: ContextPath, spans: Sequence[Span]) -> Why | None:
        if not spans:
            return None
        reasons = [f"by {_describe_prompts(spans)}", _trust(spans)]
        if path.root == "tools" and self.composition.tools:
            reasons.append("sent as a tool spec, too")
        return self._why("shown", "; ".join([*reasons, *self._cuts_of(path, spans)]), spans)

    def _cuts_of(self, path: ContextPath, spans: Sequence[Span]) -> list[str]:
        """Return the cuts of the layers that show a value, if a part of the value can be missing."""
        cuts: list[str] = []
        for layer, trim in self.composition.trims.items():
            # Items and messages are cut whole, so that a shown item has no missing part.
            is_whole = len(path) > 1 and (trim.first_item or layer == path.root)
            if not is_whole and any(is_inside(span.prompt, layer) for span in spans):
                cuts.append(f"{layer}: {trim.why}")
        return cuts

    def _own_examples_answer(self, path: ContextPath) -> Why | None:
        """Explain the examples of prompts that have their own, if the context has no examples; else return None."""
        if not self._has_only_own_examples(path):
            return None
        paths = self._own_example_paths
        return self._about_all(paths, self._spans_inside(*paths))

    def _has_only_own_examples(self, path: ContextPath) -> bool:
        """True if a path leads to examples, and only prompts have examples."""
        return path.root == "examples" and bool(self._own_example_paths) and not self.composition.context.examples

    def _sent_answer(self, path: ContextPath) -> Why | None:
        """Explain tools and stored messages, which are sent outside of the text of prompts."""
        composition = self.composition
        if path.root == "tools" and composition.tools:
            return self._why("sent", "as a tool spec")
        if path.root == "conversation" and not composition.layers.conversation:
            return None
        for row in rows_of(composition):
            if isinstance(row, HistoryRow) and row.layer == path.root:
                return self._about_history(row, path)
        return None

    def _about_history(self, row: HistoryRow, path: ContextPath) -> Why:
        """Explain stored messages that no span shows: they have no text, are cut, or are incomplete."""
        history = getattr(self.composition.context, row.layer)
        reason = "tool calls without results, or results without calls"
        if len(path) > 1:
            reason = "a tool call without its result, or a result without its call"
        numbers = _numbers_sent(row, path)
        if numbers:
            messages = self._describe_messages(numbers)
            if len(path) > 2:
                messages = f"a part of {messages}"
            return self._why("sent", f"as {messages}")
        if len(path) == 1 and not len(history):
            return self._why("empty", row.layer)
        trim = self.composition.trims.get(row.layer)
        if trim is not None and (len(path) == 1 or path[1] in history.complete_at()):
            return self._why("cut", f"{row.layer}: {trim.why}")
        return self._why("unread", reason)

    def _unsent_answer(self, path: ContextPath) -> Why:
        """Explain a value of the context that no span shows separately."""
        siblings = self._spans_in(path.upto(2))
        if len(path) > 2 and siblings:
            return self._why("unknown", f"{_describe_prompts(siblings)} shows {path.upto(2)}, but not {path} unchanged")
        trims = self.composition.trims
        reader_paths = [at for at, prompt in self.composition.layers.prompts() if _reads_path(prompt, path)]
        cuts = [f"{at}: {trims[at].why}{_after_cut(path, trims[at])}" for at in reader_paths if at in trims]
        return self._whole_answer(path, cuts) or self._unread_answer(path, reader_paths)

    def _whole_answer(self, path: ContextPath, cuts: Sequence[str]) -> Why | None:
        """Explain a value if a span shows the whole that contains it, or if a budget removed it."""
        whole = self._spans_around(path)
        # If other items have spans, the span of the whole probably shows only a property, such as the number of items.
        if whole and not (cuts and self._shows_parts_of(path.root)):
            return self._why("unknown", "; ".join([f"{_describe_prompts(whole)} shows {path.root} as a whole", *cuts]))
        if cuts:
            return self._why("cut", "; ".join(cuts))
        return None

    def _spans_around(self, path: ContextPath) -> list[Span]:
        """Return the spans that show a value that contains the value at a path."""
        return [entry.span for entry in self._shown if any(path.is_below(shown_path) for shown_path in entry.paths)]

    def _shows_parts_of(self, root: str) -> bool:
        """True if a span shows a part of the context value `root`."""
        return any(
            shown_path.root == root and len(shown_path) > 1 for entry in self._shown for shown_path in entry.paths
        )

    def _unread_answer(self, path: ContextPath, reader_paths: Sequence[str]) -> Why:
        """Explain a value of the context that no span shows and no budget removed."""
        custom_paths = [at for at, prompt in self.prompts.items() if has_own_code(prompt)]
        if custom_paths:
            return self._why("unknown", f"{', '.join(custom_paths)} has custom code, which might show it")
        if not reader_paths:
            reason = f"no prompt reads {path.root}"
            if path.root == "examples" and self._own_example_paths:
                reason += f" of the context; other examples are in {', '.join(self._own_example_paths)}"
            return self._why("unread", reason)
        value = path.value(self.composition.context.view)
        if value is None or (isinstance(value, Sequence | Mapping) and not value):
            return self._why("empty", str(path))
        return self._why("unknown", f"{', '.join(reader_paths)} reads {path.root}, but does not show this part")

    @cached_property
    def _shown(self) -> list[_Shown]:
        """The spans that show a value of the context."""
        return [_Shown(span, tuple(paths_of(span.pointer))) for span in self.spans if span.pointer]

    @cached_property
    def _kwargs_read(self) -> set[str]:
        """Names of the kwargs that prompts read by name, not as `additional_kwargs.NAME`; the context may lack them."""
        prompts = [prompt for _, prompt in self.composition.layers.prompts()]
        return {str(path[1]) for prompt in prompts for path in _paths_read(prompt) if len(path) > 1}

    @cached_property
    def _own_example_paths(self) -> list[str]:
        """Paths of the prompts that have their own examples, and read no examples of the context."""
        return [at for at, prompt in self.prompts.items() if isinstance(prompt, ExamplesPrompt) and prompt.examples]

    # --- an unknown pointer

    def advice(self) -> Advice:
        """Return advice that suggests the nearest valid path or name."""
        if self.path is not None and self._has_only_own_examples(self.path):
            at = self._own_example_paths[0]
            return Advice(f": the examples are in the prompt {at}, not in the context; did you mean {at!r}?", at)
        if self.path is not None and self.path.root in CONTEXT_NAMES:
            return advice_for(self.path, self.composition.context.view)
        rows = [row.layer for row in layer_table(self.composition)]
        labels = [document.label for document in self.composition.context.view["documents"]]
        valid = [*dict.fromkeys([*rows, *self.prompts, *PLACES, *sorted(CONTEXT_NAMES), *labels])]
        return self._nearest_prompt(valid)

    def _nearest_prompt(self, valid: Sequence[str]) -> Advice:
        """Return the nearest valid name, first among the prompts of the same place."""
        layers = self.composition.layers
        place = self.pointer.partition("[")[0]
        siblings = [name for name in valid if name.startswith(f"{place}[")]
        if not siblings:
            return Advice(nearest(self.pointer, valid), similar(self.pointer, valid))
        suggestion = similar(self.pointer, siblings) or siblings[-1]
        count = len(getattr(layers, place))
        return Advice(f"; did you mean {suggestion!r}? {place} has {count} prompts", suggestion)


def _numbers_sent(row: HistoryRow, path: ContextPath) -> list[int]:
    """Return the indices, in the composition, of all messages of a history, or of the message at the path."""
    if len(path) == 1:
        return [*row.numbers.values()]
    return [number for index, number in row.numbers.items() if index == path[1]]


def _after_cut(path: ContextPath, trim: Trim) -> str:
    """Return the end of the reason for an item after the first item that was cut; empty for other values."""
    first = parse_path(trim.first_item)
    if first is None or len(path) == 1 or path.root != first.root or path[1] == first[1]:
        return ""
    return f"; only the first items are kept, so all {first.root} after {first} are left out, too"


def _source_of(item: object) -> str:
    """Return the end of a reason: the source of a document or fact; empty for other values."""
    if isinstance(item, Document) and item.source:
        return f"; from {item.label}"
    if isinstance(item, Fact | Skill) and item.source:
        return f"; from {item.source[-MAX_SHOWN_CHARS:]}"
    return ""


def _paths_read(prompt: BasePrompt) -> Iterator[ContextPath]:
    """Yield the paths that a prompt and the prompts inside it read: for its text, or to choose its text."""
    supplied = prompt.supplies
    if isinstance(prompt, ExamplesPrompt) and prompt.examples:
        supplied = supplied | {"examples"}
    for name in prompt.template.names.keys() - supplied:
        if name in CONTEXT_NAMES:
            yield ContextPath((name,))
        else:
            yield ContextPath((KWARGS, name))
    if isinstance(prompt.template.text, Mapping):
        yield ContextPath(("locale",))
    if isinstance(prompt, ExamplesPrompt) and type(prompt.selector) is not StaticSelector:
        yield ContextPath(("user_input",))
    for _, child in prompt.children:
        yield from _paths_read(child)


def _reads_path(prompt: BasePrompt, path: ContextPath) -> bool:
    return any(path.is_below(read) or read.is_below(path) for read in _paths_read(prompt))


def _trust(spans: Iterable[Span]) -> str:
    return " and ".join(sorted({span.trust for span in spans}))


def _describe_prompts(spans: Iterable[Span]) -> str:
    sizes: dict[str, int] = {}
    for span in spans:
        sizes[span.prompt] = sizes.get(span.prompt, 0) + len(span.text)
    return ", ".join(f"{prompt} ({size} characters)" for prompt, size in sizes.items())
