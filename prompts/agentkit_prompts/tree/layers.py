"""`Layers`: which prompts go where in a chat turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import KwargsError, PromptError
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.examples import ExamplesPrompt, StaticSelector
from agentkit_prompts.tree.frozen_model import Declared
from agentkit_prompts.tree.leaves import Prompts, UserInputPrompt
from agentkit_prompts.tree.prompt import BasePrompt, check_extent
from agentkit_prompts.tree.volatility import VolatilityWarning, volatile_before_stable

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["PLACES", "Block", "Layers", "Place", "Plan"]

Place: TypeAlias = Literal["system", "before_input", "input", "after_input", "after_intermediate"]
PLACES: tuple[Place, ...] = get_args(Place)
_NOTHING: Any = ()
Reader: TypeAlias = Callable[[PromptContext], tuple[Any, ...]]
"""Gets from a context the values that something was rendered from."""
_Step: TypeAlias = tuple[str, BasePrompt, Reader | None, Callable[[PromptContext], Rendered]]


@lru_cache(maxsize=1)
def _user_input() -> Any:
    return (UserInputPrompt(),)


class Layers(Declared):
    """Places prompts where a chat turn has room for them.

    The turn is: a system message (`system`), the conversation, one user message (`before_input`, `input`,
    `after_input`), the tool traffic of this turn, and, when there is any, a closing user message
    (`after_intermediate`). Prompts of one place are joined with a blank line; those that render to nothing vanish.

    Raises:
        SchemaConflict: Two prompts require the same additional kwarg with different schemas.
        PromptError: A prompt contains itself.
    """

    __slots__ = ("_plan",)  # which no copy shares

    _first: ClassVar[str] = "system"

    system: Prompts = Field(default=_NOTHING, kw_only=False)
    conversation: bool = True
    """Whether the conversation of the context is sent as messages."""
    history: Size = Size(cut="items", priority=10)
    """How much of the conversation is sent under a budget: its newest turns."""
    history_block: int = 512
    """Tokens between the points where a cut history may start. Larger keeps the prefix stable for more turns, and may
    leave up to as many tokens unused."""
    traffic: Size = Size(cut="items", priority=50)
    """How much of this turn's tool traffic is sent under a budget: its newest steps, always the last one."""
    before_input: Prompts = _NOTHING
    input: Prompts = Field(default_factory=lambda: _user_input())
    after_input: Prompts = _NOTHING
    after_intermediate: Prompts = _NOTHING
    empty_messages: bool = False
    """Whether a system or user message that has prompts is sent even when they render to nothing, for models that were
    trained on that. An Anthropic request cannot hold one."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for path, prompt in self.prompts():
            check_extent(path, prompt)
        for name in ("history", "traffic"):
            cut = getattr(self, name).cut
            if cut not in ("none", "drop", "items"):
                raise PromptError(
                    f"{name}: only whole messages are cut; use cut none, drop or items, not {cut!r}",
                    name=f"{name}.cut",
                    value=str(cut),
                )
        if self.history_block < 0:
            raise PromptError(
                f"history_block must not be negative, got {self.history_block}; 0 switches it off",
                name="history_block",
                value=self.history_block,
            )
        _ = self.additional_kwargs_schema  # merging finds a conflict now rather than later
        for advice in self.volatile_before_stable():
            warn(advice, VolatilityWarning)
        return self

    @property
    def plan(self) -> Plan:
        """What is known before any context; computed on first use."""
        try:
            plan: Plan = self._plan  # type: ignore[attr-defined]
        except AttributeError:
            plan = Plan(self)
            object.__setattr__(self, "_plan", plan)
        return plan

    def volatile_before_stable(self) -> list[str]:
        """Say which prompts of `system` change more often than what is sent after them, which breaks prompt caches."""
        return volatile_before_stable(self.prompts("system"), conversation=self.conversation)

    def prompts(self, *places: Place) -> Iterator[tuple[str, BasePrompt]]:
        """Yield the outermost prompts of these places, or of all, in the order they are sent, with their paths, such as
        `system[0]`.
        """
        for place in places or PLACES:
            for index, prompt in enumerate(getattr(self, place)):
                yield f"{place}[{index}]", prompt

    def walk(self) -> Iterator[tuple[str, BasePrompt]]:
        """Yield every prompt of the tree with its path."""
        stack = list(self.prompts())[::-1]
        while stack:
            path, prompt = stack.pop()
            yield path, prompt
            stack.extend((f"{path}.{name}", child) for name, child in reversed(prompt.children))

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """What all prompts together require of `additional_kwargs`; `x-required-by` lists the prompts per property."""
        required = [(path, prompt.additional_kwargs_schema) for path, prompt in self.prompts()]
        if all(schema is None for _, schema in required):
            return None
        from agentkit_prompts.schemas.merge import merge_schemas

        return merge_schemas(required)

    def check_kwargs(self, kwargs: Mapping[str, Any]) -> None:
        """Check additional kwargs against every prompt.

        Raises:
            KwargsError: Names all missing and invalid kwargs at once, with the prompts that need them.
        """
        problems: dict[str, tuple[str, tuple[str, ...]]] = {}
        for path, prompt in self.walk():
            if prompt.children and type(prompt).kwargs_problems is BasePrompt.kwargs_problems:
                own = prompt.template.kwargs_schema  # children answer for themselves
                found = prompt.kwargs_problems(kwargs) if own is not None else []
                names = set((own or {}).get("properties", {}))
                found = [(name, what) for name, what in found if name.split(".")[0] in names]
            else:
                found = prompt.kwargs_problems(kwargs)
            for name, what in found:
                known = problems.get(name, (what, ()))
                problems[name] = (known[0], (*known[1], path))
        if problems:
            raise KwargsError(problems)


class Block:
    """What is known about one message before any context: its steps, and the names they read together."""

    __slots__ = ("name", "reads", "steps")

    def __init__(self, name: str, prompts: Iterable[tuple[str, BasePrompt]]) -> None:
        self.name = name
        placed = [(path, prompt, _reads(prompt)) for path, prompt in prompts]
        known = [names for _, _, names in placed if names is not None]
        names = frozenset[str]().union(*known)
        is_alone = len(placed) == 1
        # The input differs every turn: it is looked up where it stands alone, for the steps of its turn.
        is_known = len(known) == len(placed) and (is_alone or "user_input" not in names)
        self.reads = _reader(names) if is_known else None
        self.steps: tuple[_Step, ...] = tuple(
            [
                (
                    path,
                    prompt,
                    None if names is None or is_alone or "user_input" in names else _reader(names),
                    prompt.renderer(),
                )
                for path, prompt, names in placed
            ]
        )


def _reads(prompt: BasePrompt) -> frozenset[str] | None:
    """Return the names a prompt depends on; a fence also depends on the session's key, which is no name."""
    return None if prompt.fence or any(_reads(child) is None for _, child in prompt.children) else prompt.reads


def _reader(names: Collection[str]) -> Reader:
    """Return the function that gets the values of `names` from a context; the input, if any, with its kwargs."""
    if "user_input" in names:
        names = {*names, "additional_kwargs"}
    ordered = ["user_input.additional_kwargs" if name == "additional_kwargs" else name for name in sorted(names)]
    if not ordered:
        return lambda ctx: ()
    values = attrgetter(*ordered)
    return values if len(ordered) > 1 else lambda ctx: (values(ctx),)


class Plan:
    """What is known about layers before any context."""

    __slots__ = ("blocks", "fixed", "has_maximum", "selecting")

    def __init__(self, layers: Layers) -> None:
        every = [*layers.walk()]
        sizes = (layers.history, layers.traffic, *(prompt.size for _, prompt in every))
        self.has_maximum = any(size.max is not None for size in sizes)
        selecting: dict[int, tuple[str, ExamplesPrompt]] = {}
        for path, prompt in every:
            if isinstance(prompt, ExamplesPrompt) and type(prompt.selector) is not StaticSelector:
                selecting.setdefault(id(prompt), (path, prompt))
        self.selecting = tuple(selecting.values())
        """The prompts whose selector looks at the query, each once, with its path."""
        blocks = (
            Block("system", layers.prompts("system")),
            Block("input", layers.prompts("before_input", "input", "after_input")),
            Block("after_intermediate", layers.prompts("after_intermediate")),
        )
        self.blocks = tuple([(slot, block) for slot, block in enumerate(blocks) if block.steps])
        """The messages that have prompts, each with its place among the three."""
        self.fixed: list[Any] = [None] * len(blocks)
        """Per message its section where that is text of the developer only: put there when it was rendered first."""
