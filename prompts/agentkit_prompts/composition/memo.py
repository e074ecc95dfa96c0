"""`Memo`: the rendered messages and fragments of one session, found again by the identity of their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentkit_prompts.composition.declarations import NO_DECLARATIONS, Declarations, OutputRequest
from agentkit_prompts.composition.inputs import Inputs
from agentkit_prompts.composition.plan import Plan
from agentkit_prompts.composition.sections import Section
from agentkit_prompts.context.prompt_context import ToolSpec

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["Memo", "Remembered"]


class Remembered(NamedTuple):
    """A message of the turn before."""

    section: Section
    inputs: Inputs
    """Inputs of all its prompts."""
    fragment_inputs: Sequence[Inputs]
    """Inputs of each of its prompts."""


class Memo:
    """Rendered fragments of one session. Never share one between sessions or threads.

    Attributes:
        messages: The last rendering of each message, by its slot.
    """

    __slots__ = ("_declarations", "_plan", "messages")

    def __init__(self, declarations: Declarations = NO_DECLARATIONS) -> None:
        self._declarations = declarations
        self._plan: Plan | None = None
        self.messages: dict[int, Remembered] = {}

    def start(self, plan: Plan) -> None:
        """Begin a turn; forget the messages if the layers are others."""
        if self._plan is not plan:
            self._plan = plan
            self.messages = {}

    def declarations(self, tools: tuple[ToolSpec, ...], output: OutputRequest | JsonSchema | None) -> Declarations:
        """Return the declarations of the turn before if the tools and the requested output are the same objects."""
        known = self._declarations
        if not (known.declares(tools) and known.requests(output)):
            self._declarations = Declarations(tools, output)
        return self._declarations
