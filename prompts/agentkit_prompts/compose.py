"""`compose`: layers and a context become a composition.

Fragments are memoised by the identity of the inputs they read, in a `Memo` that belongs to one session, so a turn
costs what is new in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from agentkit_prompts.base import BasePrompt
from agentkit_prompts.budget import Budget
from agentkit_prompts.composition import SEPARATOR, Composition, Fragment, Section
from agentkit_prompts.context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.layers import PLACES, Layers
from agentkit_prompts.rendered import Rendered
from agentkit_prompts.schema import JsonSchema
from agentkit_prompts.tokens import ESTIMATE, TokenCounter

__all__ = ["Memo", "compose"]

_Step: TypeAlias = tuple[str, BasePrompt, tuple[str, ...] | None]
_ATOMS = frozenset({str, int, float, bool, type(None)})
_EMPTY = Section((), Rendered.from_text(""))


class _Plan:
    """What is known about layers before any context: the steps of each place and the names it reads."""

    __slots__ = ("has_maximum", "places")

    def __init__(self, layers: Layers) -> None:
        sizes = [layers.history, layers.traffic, *(prompt.size for _, prompt in layers.walk())]
        self.has_maximum = any(size.max is not None for size in sizes)
        self.places: list[tuple[tuple[_Step, ...], tuple[str, ...] | None]] = []
        for place in PLACES:
            steps: list[_Step] = []
            union: set[str] | None = set()
            for index, prompt in enumerate(getattr(layers, place)):
                reads = prompt.reads
                steps.append((f"{place}[{index}]", prompt, None if reads is None else tuple(sorted(reads))))
                union = None if union is None or reads is None else union | reads
            self.places.append((tuple(steps), None if union is None else tuple(sorted(union))))


class Memo:
    """Rendered fragments of one session. Never share one between sessions or threads."""

    __slots__ = ("_plan", "_sections")

    def __init__(self) -> None:
        self._plan: _Plan | None = None
        self._sections: list[tuple[tuple[Any, ...], Section] | None] = []

    def sections(self, plan: _Plan) -> list[tuple[tuple[Any, ...], Section] | None]:
        """Return the remembered sections, one slot per place; empty ones when the layers are others."""
        if self._plan is not plan:
            self._plan = plan
            self._sections = [None] * len(plan.places)
        return self._sections


def compose(
    layers: Layers,
    ctx: PromptContext,
    *,
    budget: int | Budget | None = None,
    tokenizer: TokenCounter | None = None,
    memo: Memo | None = None,
    output_schema: JsonSchema | None = None,
) -> Composition:
    """Render `layers` over `ctx` into everything that would be sent.

    Args:
        layers: Which prompts go where.
        ctx: What they are rendered from.
        budget: Tokens the composition may have at most; prompts give way as their `size` says.
        tokenizer: Counts tokens; a fast estimate when not given.
        memo: Fragments of earlier turns of the same session, reused where their inputs are the same objects.
        output_schema: JSON Schema the answer must follow, for targets that can ask the model for it.

    Raises:
        PromptError: A prompt cannot be rendered; names prompt path, file, line and variable.
        BudgetError: What must be sent does not fit; names every minimum.
    """
    try:
        plan: _Plan = layers._plan  # type: ignore[attr-defined]
    except AttributeError:
        plan = _Plan(layers)
        object.__setattr__(layers, "_plan", plan)
    view = ctx.view
    known = (memo or Memo()).sections(plan)
    sections: list[Section] = []
    for slot, (steps, reads) in enumerate(plan.places):
        if not steps:
            sections.append(_EMPTY)
            continue
        remembered = known[slot]
        inputs: tuple[Any, ...] = ()
        if reads is not None:
            inputs = tuple([view[name] for name in reads])
            if remembered is not None and _same(inputs, remembered[0]):
                sections.append(remembered[1])
                continue
        section = _render(steps, ctx, view, remembered[1] if remembered is not None else None)
        known[slot] = (inputs, section)
        sections.append(section)
    composition = Composition(ctx, layers, sections, tokenizer or ESTIMATE, output_schema)
    if budget is None and not plan.has_maximum:
        return composition
    limit = Budget(budget) if isinstance(budget, int) else budget
    if not plan.has_maximum and limit is not None and composition.tokens <= limit.tokens:
        composition.budget = limit
        return composition
    from agentkit_prompts.fit import fit

    return fit(composition, limit)


def _render(steps: tuple[_Step, ...], ctx: PromptContext, view: Mapping[str, Any], before: Section | None) -> Section:
    """Render the prompts of one place, reusing those fragments of `before` whose inputs did not change."""
    fragments: list[Fragment] = []
    for index, (path, prompt, reads) in enumerate(steps):
        inputs: tuple[Any, ...] | None = None
        if reads is not None:
            inputs = tuple([view[name] for name in reads])
            if before is not None:
                fragment = before.fragments[index]
                if fragment.inputs is not None and _same(inputs, fragment.inputs):
                    fragments.append(fragment)
                    continue
        try:
            rendered = prompt.render(ctx)
        except PromptError as error:
            raise error.at(f"{path} ({prompt.label})") from error.__cause__
        fragments.append(Fragment(path, prompt, rendered, inputs))
    shown = [(fragment.path, fragment.rendered) for fragment in fragments if fragment.rendered.text]
    return Section(tuple(fragments), Rendered.join(SEPARATOR, shown, steps[0][0].partition("[")[0]))


def _same(now: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    """Whether every input is the same object, or kwargs of the same names and the same immutable values."""
    for a, b in zip(now, before, strict=True):
        if a is b:
            continue
        if type(a) is not MappingProxyType or type(b) is not MappingProxyType or len(a) != len(b):
            return False
        for name, value in a.items():
            if type(value) not in _ATOMS or name not in b or b[name] is not value:
                return False
    return True
