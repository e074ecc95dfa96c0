"""Contexts: the variables of one rendering, and the methods that generated code calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any

from jinja2 import Undefined
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, LoopContext
from jinja2.utils import Namespace, missing

from agentkit_prompts.context.frozen import FrozenList
from agentkit_prompts.context.parts import Media
from agentkit_prompts.limits import MAX_SHOWN_CHARS
from agentkit_prompts.templates.sandbox.attributes import attribute, refuse_private
from agentkit_prompts.templates.sandbox.calls import is_offered
from agentkit_prompts.templates.sandbox.finalise import concat, is_content, number_text, parts_of, text, text_for_buffer
from agentkit_prompts.templates.sandbox.formatting import BoundFormat
from agentkit_prompts.templates.sandbox.meter import ROUNDS_PER_LOOK, Meter, refuse_large
from agentkit_prompts.templates.sandbox.operation_errors import TemplateOperationError, require
from agentkit_prompts.templates.sandbox.values import Composed, MediaText, RenderedText, Trusted

_ONLY_TEXT = frozenset({str})
_PLAIN = frozenset({str, int, float, bool})
_LISTS = frozenset({list, tuple, FrozenList})
"""Most frequent types of loop values."""


class _Watched:
    """Items of a long loop; iterating over them checks the clock regularly."""

    def __init__(self, items: Any, look: Callable[[], None]) -> None:
        self._items = items
        self._look = look

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        for number, item in enumerate(self._items):
            if number % ROUNDS_PER_LOOK == ROUNDS_PER_LOOK - 1:
                self._look()
            yield item


class _IndexedLoop(LoopContext):
    """The `loop` of a for loop over pairs of an index and an item, which `BoundedCodeGenerator` generates."""

    @property
    def previtem(self) -> Any:
        previous = super().previtem
        if isinstance(previous, Undefined):
            return previous
        return previous[1]

    @property
    def nextitem(self) -> Any:
        following = super().nextitem
        if isinstance(following, Undefined):
            return following
        return following[1]


class BoundedContext(Context):
    """Variables of one rendering and its meter."""

    meter: Meter

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        context = super().derived(locals)
        # Jinja also creates contexts without a meter, which need no limits.
        context.meter = getattr(self, "meter", None)  # type: ignore[attr-defined]  # it is a BoundedContext
        return context

    def shown(self, value: Any) -> str:
        """Return the text of a value that is printed."""
        if type(value) is str:
            return value
        refuse_large(value)
        self.meter.deep(value)
        result = str(value)
        self.meter.make(len(result))
        return result

    def add(self, *values: Any) -> Any:
        """Return `a + b + ...`."""
        if _ONLY_TEXT.issuperset(map(type, values)):
            self.meter.make_small(sum(map(len, values)))
            return "".join(values)
        add = partial(self.environment.call_binop, self, "+")  # type: ignore[attr-defined]  # it is a sandbox
        return reduce(add, values)

    def join(self, values: Iterable[Any]) -> str:
        """Return `a ~ b`."""
        return self.meter.join([self.shown(value) for value in values])

    def concat(self, texts: Iterable[str]) -> str:
        """Return the joined texts of the buffer of a macro or block."""
        return self.meter.join(list(texts))

    def rounds(self, value: Any) -> Any:
        """Count the rounds of a loop over a value, and return the items of the value."""
        items = value
        if hasattr(value, "__len__"):
            self.meter.visit(len(value))
        else:
            items = self.meter.items(value)
        # A short loop needs no checks of the clock: `Meter.visit` checks the clock after several loops.
        if len(items) < ROUNDS_PER_LOOK:
            return items
        return _Watched(items, self.meter.look)

    def loop(self, items: Any, undefined: Any, recurse: Any = None, depth0: int = 0) -> LoopContext:
        """Return the object `loop` of a for loop; `recurse` is the function of a recursive loop."""
        if recurse is None:
            return _IndexedLoop(items, undefined)
        return LoopContext(self.rounds(items), undefined, recurse, depth0)

    def inside(self, container: Any) -> Any:
        """Check the size of a container before a membership test, and return the container."""
        if not isinstance(container, dict):
            self.meter.deep(container)
        return container

    def mapping(self, pairs: tuple[tuple[Any, Any], ...]) -> dict[Any, Any]:
        """Return a dictionary of the pairs, after a check of the keys."""
        self.meter.keys([key for key, _ in pairs])
        return dict(pairs)


class PromptContext(BoundedContext):
    """Variables of a prompt template, and its output. A value has precedence over a function of the same name.

    Attributes:
        texts: Parts of the output in order.
        marks: Origins of the texts, as in `Trace`.
        has_parts: True if the texts contain media or rendered text.
    """

    name = None
    blocks = {}  # noqa: RUF012 (prompt templates have no blocks)
    has_parts = False

    def __init__(self, eval_context: EvalContext, values: Mapping[str, Any], meter: Meter) -> None:
        # Not `super().__init__`: its preparations for blocks and imports take as long as a short template.
        self.environment = eval_context.environment
        self.eval_ctx = eval_context
        self.parent = values  # type: ignore[assignment]  # any mapping: Jinja only reads it
        self.vars = {}
        self.exported_vars = set()
        self.meter = meter
        self.texts: list[str] = []
        self.marks: list[tuple[tuple[int | None, ...], tuple[int, ...]]] = []

    def resolve_or_missing(self, key: str) -> Any:
        value = self.vars.get(key, missing)
        if value is missing:
            value = self.parent.get(key, missing)
        if value is missing:
            return self.environment.globals.get(key, missing)
        return value

    # Output

    def emit(self, mark: tuple[tuple[int | None, ...], tuple[int, ...]], values: Sequence[Any]) -> None:
        """Append the values of an output statement. Generated code calls this if not all values are plain text."""
        if _PLAIN.issuperset(map(type, values)):
            self.texts += [value if type(value) is str else number_text(self.meter, value) for value in values]
            self.marks.append(mark)
            return
        sites: list[int | None] = []
        for site, value in zip(mark[0], values, strict=True):
            parts = self._parts(value)
            self.texts += parts
            sites += [site] * len(parts)
        self.marks.append((tuple(sites), mark[1]))

    def _parts(self, value: Any) -> list[str]:
        kind = type(value)
        if kind is str or kind is Trusted or kind is Composed:
            return [value]
        if kind is not RenderedText and not is_content(value):
            return [text(self.meter, value)]
        self.has_parts = True
        return [MediaText(part) if isinstance(part, Media) else part for part in parts_of(self.meter, value)]

    def shown(self, value: Any) -> str:
        if type(value) is str:
            return value
        return text_for_buffer(self.meter, value)

    def concat(self, texts: Iterable[str]) -> str:
        return concat(self.meter, list(texts))

    # Values

    def rounds(self, value: Any) -> Any:
        if type(value) not in _LISTS:
            require(value)
            kind = type(value)
            if isinstance(value, set | frozenset):
                raise TemplateOperationError(f"a {kind.__name__} has no fixed order: sort it first, with `|sort`")
            if isinstance(value, bytes | bytearray | memoryview):
                raise TemplateOperationError(f"{kind.__name__} is not text: decode it before the template")
            if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
                raise TemplateOperationError(
                    f"{kind.__name__} cannot be looped over: expected a list, a mapping or text"
                )
        return super().rounds(value)

    def method(self, value: Any, name: str) -> Any:
        """Return the method or macro that `value.name(...)` calls: a method of data, or an entry of a namespace."""
        require(value)
        refuse_private(name)
        if isinstance(value, str) and name in ("format", "format_map"):
            return BoundFormat(self.environment, value, name, text)  # type: ignore[arg-type]  # it is a sandbox
        if is_offered(value, name, is_prompt=True):
            return getattr(value, name)
        if value is None or isinstance(value, Namespace | Mapping):
            return attribute(value, name)
        label = name[:MAX_SHOWN_CHARS]
        raise TemplateOperationError(
            f"{type(value).__name__}.{label}(...) is not one of the methods that templates can call", label
        )
