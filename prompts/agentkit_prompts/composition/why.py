"""`why`: where a prompt, or a part of the context, is in a composition, or why it is not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from agentkit_prompts.composition.context_path import ABSENT, KWARGS, ContextPath, parse_path
from agentkit_prompts.composition.explain import is_inside, layer_table, names_read
from agentkit_prompts.context.items import Document, Example, Fact
from agentkit_prompts.context.prompt_context import CONTEXT_NAMES
from agentkit_prompts.errors import PromptError
from agentkit_prompts.limits import MAX_SHOWN_CHARS
from agentkit_prompts.names import nearest, similar
from agentkit_prompts.templates.spans import Span
from agentkit_prompts.tree.examples import ExamplesPrompt, StaticSelector
from agentkit_prompts.tree.layers import PLACES
from agentkit_prompts.tree.prompt import BasePrompt, has_own_code, render_prompt

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents

__all__ = ["Why", "WhyStatus", "why"]

WhyStatus: TypeAlias = Literal["shown", "sent", "cut", "empty", "unread", "unknown"]
_REASONS: Mapping[WhyStatus, str] = {
    "shown": "shown {}",
    "sent": "sent {}, outside of the text of the messages",
    "cut": "not sent: {}",
    "empty": "not sent: {} is empty",
    "unread": "not sent: {}",
    "unknown": "not known: {}",
}


@dataclass(frozen=True, slots=True)
class Why:
    """The place of one part of a composition, or of its context."""

    pointer: str
    spans: tuple[Span, ...]
    """Every place in the messages that shows it."""
    reason: str
    """The prompts that show it, or the reason why none does."""
    status: WhyStatus
    """`shown` in a message; `sent` outside of the text of the messages; `cut` by a budget; `empty`; `unread` by every
    prompt; or `unknown`, if a prompt reads it and shows it in another form, or not at all."""

    def __str__(self) -> str:
        return f"{self.pointer}: {self.reason}"


class _Shown(NamedTuple):
    """A span, and the parts of the context that it shows."""

    span: Span
    paths: tuple[ContextPath, ...]

    def is_in(self, path: ContextPath) -> bool:
        """True if it shows the value at the path, or a part of it."""
        return any(own.is_below(path) for own in self.paths)

    def contains(self, path: ContextPath) -> bool:
        """True if it shows a value that contains the value at the path."""
        return any(path.is_below(own) for own in self.paths)

    def is_inside(self, root: str) -> bool:
        """True if it shows a part of the value of that name."""
        return any(own.root == root and len(own) > 1 for own in self.paths)


def why(composition: Contents, pointer: str) -> Why:
    """Return the answer of `Composition.why`."""
    if not isinstance(pointer, str):
        got = type(pointer).__name__
        raise PromptError(f"why: expected a path such as 'documents[0]', got {got}", name="pointer", value=got)
    path = parse_path(pointer)
    answer = None
    if path is None or path.root not in CONTEXT_NAMES:
        answer = _of_prompts(composition, pointer) or _of_row(composition, pointer)
        if path is not None and path.root in _kwargs_read(composition):
            # `AdditionalInfoPrompt` reads a kwarg by its name alone.
            path = ContextPath((KWARGS, *path))
    if answer is None and path is not None:
        answer = _of_context(composition, pointer, path)
    answer = answer or _of_row(composition, pointer)
    if answer is None:
        advice = _advice(composition, pointer, path)
        raise PromptError(
            f"why: unknown path {pointer[:MAX_SHOWN_CHARS]!r}{advice.text}",
            name=pointer[:MAX_SHOWN_CHARS],
            suggestion=advice.suggestion,
        )
    return answer


def _why(pointer: str, status: WhyStatus, what: str, spans: Sequence[Span] = ()) -> Why:
    return Why(pointer, tuple(spans), _REASONS[status].format(what), status)


# --- prompts and rows of the table


def _of_prompts(composition: Contents, name: str) -> Why | None:
    """Return the answer about a place, or about the prompts with a path, name or file."""
    prompts = dict(composition.layers.walk())
    if name in prompts:
        return _of_prompt(composition, name, prompts[name])
    if name in PLACES:
        paths = [path for path, _ in composition.layers.prompts(name)]
        if not paths:
            return _why(name, "empty", name)
    else:
        paths = [path for path, prompt in prompts.items() if name and name in (prompt.label, prompt.template.file)]
    if not paths:
        return None
    answers = [_of_prompt(composition, path, prompts[path]) for path in paths]
    spans = [span for span in composition.spans if any(is_inside(span.prompt, outer) for outer in (name, *paths))]
    status = answers[0].status
    if spans:
        status = "shown"
    return Why(name, tuple(spans), "; ".join(map(str, answers)), status)


def _of_prompt(composition: Contents, path: str, prompt: BasePrompt) -> Why:
    spans = [span for span in composition.spans if is_inside(span.prompt, path)]
    trims = [trim.why for layer, trim in composition.trims.items() if is_inside(path, layer)]
    if spans:
        size = sum(len(span.text) for span in spans)
        where = _messages(composition, {span.message for span in spans})
        return _why(path, "shown", "; ".join([f"in {where}, {size} characters; {_trust(spans)}", *trims]), spans)
    if trims:
        return _why(path, "cut", trims[0])
    if path.startswith("after_intermediate") and not len(composition.intermediate):
        return _why(path, "empty", "the tool traffic of this turn")
    outer = path.rpartition(".")[0]
    if outer and _has_text(composition, prompt):
        return _why(path, "unknown", f"{outer} changes it, or leaves it out")
    return _why(path, "empty", "its text")


def _has_text(composition: Contents, prompt: BasePrompt) -> bool:
    try:
        return bool(render_prompt(prompt, composition.context).text)
    except PromptError:
        return True


def _of_row(composition: Contents, name: str) -> Why | None:
    """Return the answer about a row of the table that is neither a prompt nor a part of the context."""
    row = next((row for row in layer_table(composition) if row.layer == name), None)
    if row is None:
        return None
    return _why(name, "sent", f"as {row.prompt}, {row.tokens} tokens")


def _messages(composition: Contents, numbers: Iterable[int]) -> str:
    messages = [f"message {number} ({composition.messages[number].role})" for number in sorted(numbers)]
    if len(messages) > 3:
        return f"{len(messages)} messages"
    return ", ".join(messages)


# --- the context


def _of_context(composition: Contents, pointer: str, path: ContextPath) -> Why | None:
    """Return the answer about a part of the context, or None if the context does not have it."""
    shown = [*_all_shown(composition)]
    spans = [one.span for one in shown if one.is_in(path)]
    value = path.value(composition.context.view)
    is_kwarg = path.root == KWARGS and len(path) == 2 and path[1] in _kwargs_read(composition)
    if not spans and value is ABSENT and not is_kwarg:
        return None
    answer = _if_sent(composition, pointer, path, spans) or _if_not_sent(composition, pointer, path, value, shown)
    item = path.upto(2).value(composition.context.view)
    source = ""
    if isinstance(item, Document) and item.source:
        source = f"; from {item.label}"
    elif isinstance(item, Fact) and item.source:
        source = f"; from {item.source[-MAX_SHOWN_CHARS:]}"
    return Why(pointer, answer.spans, f"{answer.reason}{source}", answer.status)


def _if_sent(composition: Contents, pointer: str, path: ContextPath, spans: Sequence[Span]) -> Why | None:
    """Return the answer about a part of the context that is sent, in a message or otherwise."""
    is_spec = path.root == "tools" and bool(composition.tools)
    if spans:
        also = ["sent as a tool spec, too"] * is_spec
        return _why(pointer, "shown", "; ".join([f"by {_places(spans)}", _trust(spans), *also]), spans)
    if is_spec:
        return _why(pointer, "sent", "as a tool spec")
    if path.root == "conversation" and composition.layers.conversation:
        return _of_messages(composition, pointer, "conversation", path)
    if path.root == "intermediate":
        return _of_messages(composition, pointer, "intermediate", path)
    return None


def _of_messages(
    composition: Contents, pointer: str, name: Literal["conversation", "intermediate"], path: ContextPath
) -> Why:
    """Return the answer about stored messages without a span: they have no text, are cut, or are incomplete."""
    first = int(composition.sends_system)
    if name == "intermediate":
        first += len(composition.conversation) + composition.sends_user
    numbers = {index: number for number, (_, index) in enumerate(composition.placed(name), first)}
    history = getattr(composition.context, name)
    if len(path) > 1:
        index = path[1]
        if index in numbers:
            part = "as" if len(path) == 2 else "as a part of"
            return _why(pointer, "sent", f"{part} {_messages(composition, [numbers[int(index)]])}")
        if index not in history.complete_at():
            return _why(pointer, "unread", "a tool call without its result, or a result without its call")
    elif numbers:
        return _why(pointer, "sent", f"as {_messages(composition, numbers.values())}")
    elif not len(history):
        return _why(pointer, "empty", name)
    trim = composition.trims.get(name)
    if trim is not None:
        return _why(pointer, "cut", f"{name}: {trim.why}")
    return _why(pointer, "unread", "tool calls without results, or results without calls")


def _if_not_sent(composition: Contents, pointer: str, path: ContextPath, value: Any, shown: Sequence[_Shown]) -> Why:
    """Return the answer about a part of the context that no span shows by itself."""
    readers = [at for at, prompt in composition.layers.prompts() if _reads_path(prompt, path)]
    cuts = [f"{at}: {composition.trims[at].why}" for at in readers if at in composition.trims]
    siblings = [one.span for one in shown if one.is_in(path.upto(2))]
    if len(path) > 2 and siblings:
        return _why(pointer, "unknown", f"{_places(siblings)} shows other parts of {path.upto(2)}")
    whole = [one.span for one in shown if one.contains(path)]
    # If items have spans of their own, a span of the whole is only something like their number.
    if whole and not (cuts and any(one.is_inside(path.root) for one in shown)):
        return _why(pointer, "unknown", "; ".join([f"{_places(whole)} shows {path.root} as a whole", *cuts]))
    if cuts:
        return _why(pointer, "cut", "; ".join(cuts))
    return _if_not_read(composition, pointer, path, value, readers)


def _if_not_read(composition: Contents, pointer: str, path: ContextPath, value: Any, readers: Sequence[str]) -> Why:
    """Return the answer about a part of the context that no span shows, and no budget cut."""
    custom = [at for at, prompt in composition.layers.walk() if has_own_code(prompt)]
    if custom:
        return _why(pointer, "unknown", f"{', '.join(custom)} has custom code, which can show it")
    if not readers:
        return _why(pointer, "unread", f"no prompt reads {path.root}")
    if value is None or (isinstance(value, Sequence | Mapping) and not value):
        return _why(pointer, "empty", str(path))
    return _why(pointer, "unknown", f"{', '.join(readers)} reads {path.root}, but shows no such part")


def _all_shown(composition: Contents) -> Iterator[_Shown]:
    """Yield the spans that show something of the context."""
    prompts = dict(composition.layers.walk())
    examples = composition.context.examples
    indices = {_content(example): index for index, example in reversed([*enumerate(examples)])}
    for span in composition.spans:
        if not span.pointer:
            continue
        paths = [parse_path(span.pointer)]
        # The pointer of an expression is the list of the names that it reads.
        if paths == [None]:
            paths = [parse_path(name) for name in span.pointer.split(", ")]
        prompt = prompts.get(span.prompt)
        selected: Sequence[Example] = ()
        if isinstance(prompt, ExamplesPrompt) and not prompt.examples:
            selected = prompt.chosen(composition.context)
        yield _Shown(span, tuple([_in_context(path, selected, indices) for path in paths if path is not None]))


def _in_context(path: ContextPath, selected: Sequence[Example], indices: Mapping[tuple[str, ...], int]) -> ContextPath:
    """Return the path in the context: an example is at another index there than in the selection of a prompt."""
    if path.root != "examples" or len(path) == 1 or not selected:
        return path
    index = indices.get(_content(selected[int(path[1])]))
    # A selector can also write examples that are not in the context.
    if index is None:
        return ContextPath(("selected", *path[1:]))
    return ContextPath(("examples", index, *path[2:]))


def _content(example: Example) -> tuple[str, ...]:
    """Return the fields that identify an example: a selector can return it with a score."""
    return example.input, example.output, example.id


def _paths_read(prompt: BasePrompt) -> Iterator[ContextPath]:
    """Yield the paths that a prompt and the prompts inside it read: for its text, or to choose its text."""
    for name in names_read(prompt):
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


def _kwargs_read(composition: Contents) -> set[str]:
    """Return the names of the kwargs that prompts read by their name alone, with or without a value."""
    return {str(path[1]) for _, prompt in composition.layers.prompts() for path in _paths_read(prompt) if len(path) > 1}


def _trust(spans: Iterable[Span]) -> str:
    return " and ".join(sorted({span.trust for span in spans}))


def _places(spans: Iterable[Span]) -> str:
    sizes: dict[str, int] = {}
    for span in spans:
        sizes[span.prompt] = sizes.get(span.prompt, 0) + len(span.text)
    return ", ".join(f"{prompt} ({size} characters)" for prompt, size in sizes.items())


# --- the nearest valid path


class _Advice(NamedTuple):
    """End of the message about an unknown path."""

    text: str
    suggestion: str | None = None
    """The nearest valid path or name."""


def _nearest(name: str, names: Iterable[str]) -> _Advice:
    valid = [*dict.fromkeys(names)]
    return _Advice(nearest(name, valid), similar(name, valid))


def _advice(composition: Contents, pointer: str, path: ContextPath | None) -> _Advice:
    if path is not None and path.root in CONTEXT_NAMES:
        return _advice_in_context(composition.context.view, path)
    layers = [row.layer for row in layer_table(composition)]
    valid = [*layers, *dict(composition.layers.walk()), *PLACES, *sorted(CONTEXT_NAMES)]
    place = pointer.partition("[")[0]
    siblings = [name for name in valid if name.startswith(f"{place}[")]
    if not siblings:
        return _nearest(pointer, valid)
    suggestion = similar(pointer, siblings) or siblings[-1]
    count = len(getattr(composition.layers, place))
    return _Advice(f"; did you mean {suggestion!r}? {place} has {count} prompts", suggestion)


def _advice_in_context(view: Mapping[str, Any], path: ContextPath) -> _Advice:
    known = next(length for length in range(len(path)) if path.upto(length + 1).value(view) is ABSENT)
    outer, step = path.upto(known), str(path[known])
    value = outer.value(view)
    if isinstance(value, Mapping | Sequence) and not value:
        return _Advice(f": {outer} is empty")
    if isinstance(value, Mapping):
        return _nearest(step, map(str, value))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        last = f"{outer}[{len(value) - 1}]"
        return _Advice(f": {outer} has {len(value)} items; did you mean {last!r}?", last)
    if is_dataclass(value):
        names = [name for name in dir(value) if ContextPath(("value", name)).value({"value": value}) is not ABSENT]
        return _nearest(step, names)
    return _Advice(f": {outer} is {type(value).__name__}, which has no parts")
