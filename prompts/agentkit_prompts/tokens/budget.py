"""Limits of tokens: `Size` of a prompt, `Budget` of the whole composition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agentkit_prompts.errors import Problem, PromptError, brief, raise_problems
from agentkit_prompts.limits import MAX_COUNT
from agentkit_prompts.names import reject_unknown_fields

Cut: TypeAlias = Literal["none", "drop", "head", "tail", "middle", "items"] | Callable[[str, int], str]
"""Kind of cut of a prompt.

`none` never cuts the prompt, `drop` drops the whole prompt. `head` keeps the start of the text, `tail` keeps the end,
`middle` keeps both. `items` keeps the first items (documents, facts, examples) in the order of the value that
`BasePrompt.items` names, as `values` returns it: best first. A callable receives the text and the maximum number of
tokens, and returns the text to send.
"""
_CUTS = ("none", "drop", "head", "tail", "middle", "items")


@reject_unknown_fields(PromptError)
@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Minimum, target and maximum tokens of a prompt, and its cut. The counter of the composition counts the tokens.

    Under a budget, every prompt first gets its `min`. Then prompts grow to their `target`: prompts with a higher
    `priority` first, prompts with equal priorities in the order they are sent. The remaining tokens are shared in
    proportion to `flex`, up to `max`.

    Raises:
        PromptError: The numbers contradict each other or are not integers, or a field is unknown.
    """

    min: int = 0
    """Minimum tokens under a budget; a prompt that is smaller is sent whole."""
    target: int | None = None
    """Tokens that the prompt gets before the surplus is shared; None for all its tokens."""
    max: int | None = None
    """Maximum tokens, also without a budget; None for no maximum."""
    priority: int = 0
    """Prompts with a higher priority grow first. Priorities are compared among siblings: the prompts inside one
    `WrapPrompt`, or the prompts of the layers."""
    cut: Cut = "none"
    flex: float = 1.0
    """Share of the surplus, relative to the `flex` of siblings; a prompt with 0 grows last."""

    def __post_init__(self) -> None:
        problems = [*self._wrong_types()] or [*self._contradictions(), *self._invalid()]
        raise_problems(PromptError, "Size", problems, name=", ".join([problem.place for problem in problems]))

    def _wrong_types(self) -> Iterator[Problem]:
        """Yield a problem for each field whose value has another type."""
        for name in ("min", "target", "max", "priority"):
            number = getattr(self, name)
            if type(number) is not int and (number is not None or name in ("min", "priority")):
                yield Problem(name, f"must be a whole number, got {brief(number)}")
        if not isinstance(self.flex, int | float):
            yield Problem("flex", f"must be a number, got {brief(self.flex)}")
        if not isinstance(self.cut, str) and not callable(self.cut):
            yield Problem("cut", f"must be a name or a callable, got {brief(self.cut)}")

    def _invalid(self) -> Iterator[Problem]:
        """Yield the problems of single fields."""
        for name in ("min", "target", "max"):
            number = getattr(self, name)
            if number is not None and number < 0:
                yield Problem(name, f"must not be negative, got {brief(number)}")
        if not 0 <= self.flex < float("inf"):
            yield Problem("flex", f"must be a finite number of 0 or more, got {brief(self.flex)}")
        if isinstance(self.cut, str) and self.cut not in _CUTS:
            yield Problem("cut", f"unknown cut {brief(self.cut)}: use {', '.join(_CUTS)} or a callable")

    def _contradictions(self) -> Iterator[Problem]:
        """Yield a problem for each field that is above `max`."""
        if self.max is None:
            return
        for name in ("min", "target"):
            number = getattr(self, name)
            if number is not None and number > self.max:
                yield Problem(name, f"{brief(number)} is above max {brief(self.max)}")


@reject_unknown_fields(PromptError)
@dataclass(frozen=True, slots=True)
class Budget:
    """Maximum tokens of a composition.

    Raises:
        PromptError: The reserve leaves no tokens, a value is not an integer, or a field is unknown.
    """

    limit: int
    """Tokens of the context window."""
    reserve: int = 0
    """Tokens that are reserved for the answer."""

    def __post_init__(self) -> None:
        for name, number in (("limit", self.limit), ("reserve", self.reserve)):
            if type(number) is not int or number > MAX_COUNT:
                reason = f"Budget: limit and reserve must be whole numbers of tokens, got {brief(number)}"
                raise PromptError(reason, name=name)
        if self.reserve < 0 or self.limit - self.reserve <= 0:
            limit, reserve = brief(self.limit), brief(self.reserve)
            reason = f"Budget: a limit of {limit} tokens less a reserve of {reserve} leaves no tokens"
            raise PromptError(reason, name="limit, reserve")

    @property
    def tokens(self) -> int:
        """Maximum tokens to send."""
        return self.limit - self.reserve
