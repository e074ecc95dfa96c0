"""`compose`: layers and a context become a composition.

Fragments are memoised by the identity of the inputs they read, in a `Memo` that belongs to one session, so a turn
costs what is new in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, TypeAlias

from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.contents import TextTokens
from agentkit_prompts.composition.declarations import NO_DECLARATIONS, Declarations, OutputRequest
from agentkit_prompts.composition.sections import Fragment, Section
from agentkit_prompts.composition.select_examples import select
from agentkit_prompts.context.frozen import ReadOnlyDict
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_prompts.errors import KwargsError, PromptError, check_types
from agentkit_prompts.templates.rendered import Plain
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import COUNTER_EXPECTED, ESTIMATE, TokenCounter, is_counter
from agentkit_prompts.tree.layers import Block, Layers, Plan

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["Memo", "compose"]

_Known: TypeAlias = tuple[tuple[Any, ...] | None, Section] | None
"""The inputs a section was rendered from, and the section."""
_ATOMS = frozenset({str, int, float, bool, type(None)})
_EMPTY = Section((), "")
_NONE = repeat(None)


class Memo:
    """Rendered fragments of one session. Never share one between sessions or threads."""

    __slots__ = ("_declarations", "_plan", "_sections")

    def __init__(self, declarations: Declarations = NO_DECLARATIONS) -> None:
        self._declarations = declarations
        self._plan: Plan | None = None
        self._sections: list[_Known] = []

    def sections(self, plan: Plan) -> list[_Known]:
        """Return the remembered sections, one slot per message; empty ones when the layers are others."""
        if self._plan is not plan:
            self._plan = plan
            self._sections = plan.fixed.copy()
        return self._sections

    def declarations(self, tools: tuple[ToolSpec, ...], output: OutputRequest | JsonSchema | None) -> Declarations:
        """Return those of the turn before when the tools and what is asked for are the same objects."""
        known = self._declarations
        same = known.given is tools or (len(known.given) == len(tools) and all(map(is_, known.given, tools)))
        if not same or (known.output is not output and (known.output is None or known.output.schema is not output)):
            known = self._declarations = Declarations(tools, output)
        return known


def compose(
    layers: Layers,
    ctx: PromptContext,
    *,
    budget: int | Budget | None = None,
    tokenizer: TokenCounter | None = None,
    memo: Memo | None = None,
    output_schema: OutputRequest | JsonSchema | None = None,
    declares_tools: bool = True,
    text_tokens: TextTokens | None = None,
) -> Composition:
    """Render `layers` over `ctx` into everything that would be sent.

    Args:
        layers: Which prompts go where.
        ctx: What they are rendered from.
        budget: Tokens the composition may have at most; prompts give way as their `size` says.
        tokenizer: Counts tokens; a fast estimate when not given.
        memo: Fragments of earlier turns of the same session, reused where their inputs are the same objects.
        output_schema: JSON Schema the answer must follow, for targets that can ask the model for it; or how else it is
            asked for.
        declares_tools: Whether the model gets the tools beside the messages. Not so where a prompt shows them and the
            model has no other place for them: then they are neither sent nor counted a second time.
        text_tokens: Counts the text that is sent, where a chat template writes it: that has to fit the budget.

    Raises:
        PromptError: An argument is of another type, or a prompt cannot be rendered: names prompt path, file, line and
            variable.
        KwargsError: The reason is that additional kwargs are missing or invalid; names all of them.
        BudgetError: What must be sent does not fit; names every minimum.
    """
    if type(layers) is not Layers or type(ctx) is not PromptContext:  # before anything that takes time
        check_types(
            PromptError, "compose", layers=(layers, Layers, "Layers"), ctx=(ctx, PromptContext, "a PromptContext")
        )
    if tokenizer is not None and not is_counter(tokenizer):
        raise PromptError(f"compose: tokenizer: {COUNTER_EXPECTED}, got {tokenizer!r:.60}", name="tokenizer")
    plan = layers.plan
    if plan.selecting:
        ctx = select(plan.selecting, ctx)
    is_kept = memo is not None
    memo = memo or Memo()
    known = memo.sections(plan)
    sections = [_EMPTY, _EMPTY, _EMPTY]
    for slot, block in plan.blocks:
        remembered = known[slot]
        reads = block.reads
        inputs = None
        if reads is not None:
            inputs = reads(ctx)
            if remembered is not None and _same(inputs, remembered[0]):
                sections[slot] = remembered[1]
                continue
        try:
            section = _render(block, ctx, remembered[1] if remembered is not None else None, is_kept)
        except Exception as error:  # a prompt class of your own may raise anything
            if not isinstance(error, KwargsError):  # when kwargs are missing, all of them are named
                layers.check_kwargs(ctx.user_input.additional_kwargs)
            raise
        if is_kept:
            known[slot] = (_lasting(inputs) if inputs else inputs, section)
        if inputs == () and all(type(fragment[2]) is Plain for fragment in section.fragments):
            plan.fixed[slot] = (inputs, section)  # it holds nothing of the context
        sections[slot] = section
    declared = memo.declarations(ctx.tools if declares_tools else (), output_schema)
    composition = Composition(ctx, layers, sections, tokenizer or ESTIMATE, declared, text_tokens)
    if budget is None and not plan.has_maximum:
        return composition
    if type(budget) is int:
        limit: Budget | None = _budget(budget)
    elif budget is None or isinstance(budget, Budget):
        limit = budget
    else:
        raise PromptError(f"budget: expected a number of tokens or a Budget, got {type(budget).__name__}")
    if not plan.has_maximum and limit is not None and composition.tokens <= limit.tokens:
        composition.budget = limit
        return composition
    from agentkit_prompts.composition.fit_budget import Fitting

    return Fitting(composition, limit).result()


@lru_cache(maxsize=64)
def _budget(limit: int) -> Budget:
    return Budget(limit)


def _render(block: Block, ctx: PromptContext, before: Section | None, is_kept: bool) -> Section:
    """Render the prompts of one message, reusing those fragments of `before` whose inputs did not change.

    One that is kept is given the inputs by which the next turn knows them.
    """
    fragments: list[Fragment] = []
    known: Iterable[Fragment | None] = _NONE if before is None else before.fragments
    for (path, prompt, reads, rendered), fragment in zip(block.steps, known):  # noqa: B905
        inputs = None
        if is_kept and reads is not None:
            inputs = reads(ctx)
            if fragment is not None and _same(inputs, fragment[3]):
                fragments.append(fragment)
                continue
            inputs = _lasting(inputs)
        try:
            fragments.append((path, prompt, rendered(ctx), inputs))
        except PromptError as error:
            raise error.at(path) from error.__cause__
    return Section(fragments, block.name)


def _same(inputs: tuple[Any, ...], known: tuple[Any, ...] | None) -> bool:
    """Return whether inputs are the same objects as before; of kwargs and extras, the same names and values."""
    if known is None:
        return False
    for value, before in zip(inputs, known):  # noqa: B905
        if value is not before and not (
            type(value) is ReadOnlyDict  # as what was there before then is, too
            and [*value] == [*before]
            and all(map(is_, value.values(), before.values()))
        ):
            return False
    return True


def _lasting(inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the inputs if they can be recognised next time; None when some mapping of them holds what may change."""
    for value in inputs:
        if type(value) is ReadOnlyDict and not _ATOMS.issuperset(map(type, value.values())):
            return None
    return inputs
