"""`Layers`: the prompts of the messages of a chat turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator

from agentkit_prompts.errors import KwargsError, PromptError
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.extent import check_extent
from agentkit_prompts.tree.frozen_model import FrozenModel
from agentkit_prompts.tree.leaves import Prompts, UserInputPrompt
from agentkit_prompts.tree.prompt import BasePrompt
from agentkit_prompts.tree.volatility import volatile_before_stable

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema, Problem

Place: TypeAlias = Literal["system", "before_input", "input", "after_input", "after_intermediate"]
PLACES: tuple[Place, ...] = get_args(Place)
_NOTHING: Any = ()


@lru_cache(maxsize=1)
def _user_input() -> Any:
    return (UserInputPrompt(),)


class Layers(FrozenModel):
    """The prompts of a chat turn, by their places in the messages of the turn.

    The messages of a turn are: a system message (`system`), the conversation, one user message (`before_input`,
    `input`, `after_input`), the tool traffic of this turn, and after tool traffic a closing user message
    (`after_intermediate`). Prompts of one message are joined with a blank line; empty renderings are left out.

    Raises:
        SchemaConflict: Two prompts require the same additional kwarg with different schemas.
        PromptError: A field is invalid, or a prompt contains itself, nests too deeply or contains too many prompts.
    """

    __slots__ = ("_plan",)
    """The plan of `composition.plan`; a copy of the layers gets a new plan."""

    _positional: ClassVar[tuple[str, ...]] = ("system",)

    system: Prompts = Field(default=_NOTHING, kw_only=False)
    conversation: bool = True
    """True if the conversation of the context is sent as messages."""
    history: Size = Size(cut="items", priority=10)
    """Size of the conversation under a budget; the newest turns are sent."""
    history_block: int = 512
    """Distance, in tokens, between the points at which a cut history can start; 0 for any turn. A larger distance keeps
    the prefix of requests stable for more turns, but can leave up to `history_block` tokens of the budget unused."""
    traffic: Size = Size(cut="items", priority=50)
    """Size of the tool traffic of this turn under a budget; the newest steps are sent. The last step is always sent."""
    before_input: Prompts = _NOTHING
    input: Prompts = Field(default_factory=lambda: _user_input())
    after_input: Prompts = _NOTHING
    after_intermediate: Prompts = _NOTHING
    empty_messages: bool = False
    """True if a system or user message is also sent if its prompts have no text, for models that were trained with
    empty messages. An Anthropic request cannot contain an empty message."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for path, prompt in self.prompts():
            check_extent(path, prompt)
        for name in ("history", "traffic"):
            cut = getattr(self, name).cut
            if cut not in ("none", "drop", "items"):
                raise PromptError(
                    f"{name}: only whole messages can be cut; use cut none, drop or items, not {cut!r}",
                    name=f"{name}.cut",
                    value=str(cut),
                )
        if self.history_block < 0:
            raise PromptError(
                f"history_block must not be negative, got {self.history_block}; 0 disables it",
                name="history_block",
                value=self.history_block,
            )
        # A conflict of schemas raises an error here, not in the first turn.
        _ = self.additional_kwargs_schema
        return self

    def volatile_before_stable(self) -> list[str]:
        """Return advice on the prompts of `system` that change more often than the text after them, because a prompt
        cache ends at such a prompt.
        """
        return volatile_before_stable(self.prompts("system"), conversation=self.conversation)

    def prompts(self, *places: Place) -> Iterator[tuple[str, BasePrompt]]:
        """Yield the outermost prompts of `places` in the order they are sent, each after its path, such as `system[0]`.

        Without `places`, the prompts of all places are yielded.
        """
        for place in places or PLACES:
            for index, prompt in enumerate(getattr(self, place)):
                yield f"{place}[{index}]", prompt

    def walk(self) -> Iterator[tuple[str, BasePrompt]]:
        """Yield all prompts, including the prompts inside wrappers, each after its path."""
        stack = list(self.prompts())[::-1]
        while stack:
            path, prompt = stack.pop()
            yield path, prompt
            stack.extend((f"{path}.{name}", child) for name, child in reversed(prompt.children))

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """Merged schema of the `additional_kwargs` that the prompts require; None if they require nothing.

        `x-required-by` in each property lists the paths of the prompts that require it.
        """
        required = [(path, prompt.additional_kwargs_schema) for path, prompt in self.prompts()]
        if all(schema is None for _, schema in required):
            return None
        from agentkit_prompts.schemas.merge import merge_schemas

        return merge_schemas(required)

    def check_kwargs(self, kwargs: Mapping[str, Any]) -> None:
        """Check additional kwargs by the schemas of all prompts.

        Raises:
            KwargsError: Names all missing and invalid kwargs at once, with the prompts that need them.
        """
        problems: dict[str, tuple[str, tuple[str, ...]]] = {}
        for path, prompt in self.walk():
            for name, problem in _own_problems(prompt, kwargs):
                first, paths = problems.get(name, (problem, ()))
                problems[name] = (first, (*paths, path))
        if problems:
            raise KwargsError(problems)


def _own_problems(prompt: BasePrompt, kwargs: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of the kwargs that the prompt reads, without the kwargs of its children."""
    # The schema of a wrapper contains the schemas of its children, whose problems are reported with their own paths.
    if not prompt.children or type(prompt).kwargs_problems is not BasePrompt.kwargs_problems:
        return prompt.kwargs_problems(kwargs)
    schema = prompt.template.kwargs_schema
    if schema is None:
        return []
    return [problem for problem in prompt.kwargs_problems(kwargs) if problem[0].split(".")[0] in schema["properties"]]
