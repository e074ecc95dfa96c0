"""`RenderCache`: renderings of the messages and fragments of one session, reused by identity of their inputs."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.declarations import NO_DECLARATIONS, Declarations, OutputRequest
from agentkit_prompts.composition.plan import Inputs, Plan
from agentkit_prompts.context.frozen import ReadOnlyDict
from agentkit_prompts.context.prompt_context import ToolSpec

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["RenderCache"]

_ATOMS = frozenset({str, int, float, bool, type(None)})


class RenderCache:
    """Rendered messages and fragments of one session. Do not share a cache between sessions or threads."""

    __slots__ = ("_declarations", "_plan", "_remembered")

    def __init__(self, declarations: Declarations = NO_DECLARATIONS) -> None:
        self._declarations = declarations
        self._plan: Plan | None = None
        self._remembered: dict[str, tuple[Inputs, Any]] = {}

    def start(self, plan: Plan) -> None:
        """Start a turn; clear the cache if the layers are different."""
        if self._plan is not plan:
            self._plan = plan
            self._remembered = {}

    def find(self, path: str, inputs: Inputs) -> Any | None:
        """Return the last rendering of a message or a prompt if its inputs are the same, else None."""
        if path not in self._remembered:
            return None
        earlier, rendering = self._remembered[path]
        for value, earlier_value in zip(inputs, earlier, strict=True):
            if value is not earlier_value and not _has_same_items(value, earlier_value):
                return None
        return rendering

    def keep(self, path: str, inputs: Inputs, rendering: object) -> None:
        """Store a rendering, unless a value in its inputs is mutable."""
        for value in inputs:
            if type(value) is ReadOnlyDict and not _ATOMS.issuperset(map(type, value.values())):
                self._remembered.pop(path, None)
                return
        self._remembered[path] = (inputs, rendering)

    def declarations(self, tools: tuple[ToolSpec, ...], output: OutputRequest | JsonSchema | None) -> Declarations:
        """Return the declarations of the turn before if the tools and the requested output are the same objects."""
        previous = self._declarations
        if not (previous.declares(tools) and previous.requests(output)):
            self._declarations = Declarations(tools, output)
        return self._declarations


def _has_same_items(value: object, earlier: object) -> bool:
    """True for two dicts with the same keys and the same value objects."""
    if type(value) is not ReadOnlyDict or type(earlier) is not ReadOnlyDict:
        return False
    return [*value] == [*earlier] and all(map(is_, value.values(), earlier.values()))
