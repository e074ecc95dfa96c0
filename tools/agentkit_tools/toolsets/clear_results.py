"""`ClearResults`: old tool results leave the prompt, and a tool that reads them again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated

from agentkit_prompts.composition.cleared_results import READ_TOOL, result_reference
from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.context.result_clearing import ResultClearing
from agentkit_prompts.errors import brief
from agentkit_prompts.names import nearest
from agentkit_tools.calling.tool_policy import count_problems
from agentkit_tools.errors import ToolDefinitionError, ToolFailure
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext
from agentkit_tools.toolsets.context_toolset import ContextToolset
from agentkit_tools.toolsets.wrappers import Length, Start, part_of_text

_LOAD_SKILL = "load_skill"
_ABOUT = "Read an old tool result again that was removed from the prompt. Read only the parts that you need."


class ClearResults(ContextToolset):
    """Replaces old tool results in the prompt by placeholders, which the model can read again.

    Pass it to an agent as one of its tools. The conversation does not change: only the prompt contains placeholders
    with the tool, the size and an id of the result, and the tool `read_cleared_result` reads the result from the
    conversation. Results of calls that failed or were denied, and of `load_skill`, are never cleared. Old results are
    cleared in batches, so that the provider can cache the prompt between two clearings. Without a person's changes to
    the conversation, the same messages give the same prompt in every process.

    Args:
        keep: Number of the latest steps with tool calls whose results stay.
        over: Results of at most this number of tokens stay.
        batch: Minimum tokens that one clearing removes; 0 clears each result when it is old.
        only: Names of the tools whose results are cleared; None for all tools.
        without: Names of tools whose results stay.
        start: Number of characters at the start of a cleared result that stay.

    Raises:
        ToolDefinitionError: A number is out of range, names are no names, or `only` and `without` share names.
    """

    __slots__ = ("clearing",)

    clearing: ResultClearing
    """The policy."""

    def __init__(
        self,
        *,
        keep: int = 3,
        over: int = 500,
        batch: int = 4_000,
        only: Iterable[str] | None = None,
        without: Iterable[str] = (),
        start: int = 0,
    ) -> None:
        problems = count_problems(keep=(keep, 1), over=(over, 1), batch=(batch, 0), start=(start, 0))
        only_names = None
        if only is not None:
            only_names = _names("only", only, problems)
            if not only_names and "only" not in problems:
                problems["only"] = "no tool is named, so that no result would be cleared: omit only, or name tools"
        without_names = _names("without", without, problems)
        shared = [name for name in only_names or () if name in without_names]
        if shared:
            problems["without"] = f"only contains {', '.join(shared)}, too: remove the names from one of them"
        if problems:
            listed = "; ".join([f"{name}: {problem}" for name, problem in problems.items()])
            raise ToolDefinitionError(f"ClearResults: {listed}", names=problems)
        if only_names is None or _LOAD_SKILL not in only_names:
            without_names = (*without_names, _LOAD_SKILL)
        self.clearing = ResultClearing(keep, over, batch, only_names, without_names, start)
        super().__init__([Tool(self._read, name=READ_TOOL, description=_ABOUT, max_result_chars=None)])

    @property
    def version(self) -> str:
        """The policy as text."""
        return repr(self.clearing)

    def add_to(self, ctx: PromptContext) -> PromptContext:
        """Return the context with the policy."""
        if ctx.clearing is self.clearing:
            return ctx
        return ctx.evolve(clearing=self.clearing)

    def check_tools(self, names: Collection[str]) -> None:
        """Refuse names in `only` and `without` that no tool of an agent has.

        Raises:
            ToolDefinitionError: The error lists all such names.
        """
        used = [*(self.clearing.only or ()), *self.clearing.without]
        unknown = [name for name in used if name not in names and name != _LOAD_SKILL]
        if unknown:
            listed = ", ".join([f"{brief(name, 60)}{nearest(name, names)}" for name in unknown])
            raise ToolDefinitionError(f"ClearResults: the agent has no tool {listed}", names=unknown)

    async def _read(
        self,
        context: ToolContext,
        id: Annotated[str, "The id in the note that replaces the result."],
        start: Start = 0,
        length: Length = 4_000,
    ) -> str | tuple[Part, ...]:
        for message in context.messages:
            if message.role == "tool" and result_reference(message) == id:
                text = part_of_text(message.text or "nothing", start, length)
                media = [part for part in message.parts if not isinstance(part, Text)]
                if media and start == 0:
                    return (Text(text), *media)
                return text
        raise ToolFailure(f"no result in this conversation has the id {id!r:.80}: copy the id from the note")


def _names(option: str, names: object, problems: dict[str, str]) -> tuple[str, ...]:
    """Return the names of tools in an option; empty, with a problem, if the value is not a list of names."""
    listed: tuple[object, ...] = ()
    if isinstance(names, Iterable) and not isinstance(names, str):
        listed = tuple(names)
    else:
        problems[option] = f'expected names of tools, such as ["search"], got {brief(names, 60)}'
    checked = tuple([name for name in listed if isinstance(name, str) and name])
    if len(checked) < len(listed):
        problems[option] = f"expected names of tools, got {brief(listed, 60)}"
    return checked
