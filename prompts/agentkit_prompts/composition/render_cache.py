"""`RenderCache`: rendered prompts and messages of one session, reused while their inputs are the same objects."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.plan import Inputs, Plan
from agentkit_prompts.composition.tools_and_output import NO_TOOLS_NO_OUTPUT, OutputRequest, ToolsAndOutput
from agentkit_prompts.context.frozen import ReadOnlyDict
from agentkit_prompts.context.prompt_context import ToolSpec

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema

_ATOMS = frozenset({str, int, float, bool, type(None)})


class RenderCache:
    """Rendered prompts and messages of one session. Do not share a cache between sessions or threads."""

    __slots__ = ("_plan", "_renderings", "_tools_and_output", "cleared")

    def __init__(self, tools_and_output: ToolsAndOutput = NO_TOOLS_NO_OUTPUT) -> None:
        self._tools_and_output = tools_and_output
        self._plan: Plan | None = None
        self._renderings: dict[str, tuple[Inputs, Any]] = {}
        self.cleared: object = None
        """State of `cleared_histories` after the latest prompt; None if no results are cleared."""

    def start(self, plan: Plan) -> None:
        """Start a turn; clear the cache if the layers are different."""
        if self._plan is not plan:
            self._plan = plan
            self._renderings = {}

    def find(self, path: str, inputs: Inputs) -> Any | None:
        """Return the stored rendering of a prompt or a message if its inputs are the same objects, else None."""
        stored = self._renderings.get(path)
        if stored is None:
            return None
        earlier, rendering = stored
        for value, earlier_value in zip(inputs, earlier, strict=True):
            if value is not earlier_value and not _has_same_items(value, earlier_value):
                return None
        return rendering

    def keep(self, path: str, inputs: Inputs, rendering: object) -> None:
        """Store a rendering, unless an input contains mutable values."""
        for value in inputs:
            # A mutable value, such as a list in the kwargs, can change and stay the same object.
            if type(value) is ReadOnlyDict and not _ATOMS.issuperset(map(type, value.values())):
                self._renderings.pop(path, None)
                return
        self._renderings[path] = (inputs, rendering)

    def tools_and_output(
        self, tools: tuple[ToolSpec, ...], output: OutputRequest | JsonSchema | None
    ) -> ToolsAndOutput:
        """Return the object of the previous turn if its tools and output are the same objects, else a new object."""
        previous = self._tools_and_output
        if not (previous.has_tools(tools) and previous.has_output(output)):
            self._tools_and_output = ToolsAndOutput(tools, output)
        return self._tools_and_output


def _has_same_items(value: object, earlier: object) -> bool:
    """True for two dicts with the same keys and the same value objects."""
    if type(value) is not ReadOnlyDict or type(earlier) is not ReadOnlyDict:
        return False
    return [*value] == [*earlier] and all(map(is_, value.values(), earlier.values()))
