"""What a model may have beside `request`: ways to be asked for a type, a limit of its own, a count of its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from agentkit.errors import AgentDefinitionError

if TYPE_CHECKING:
    from agentkit.models.model import Model
    from agentkit_prompts.composition.composition import Composition
    from agentkit_prompts.composition.contents import TextTokens

__all__ = ["OutputMode", "fitted", "output_modes_of", "text_tokens_of"]

OutputMode = Literal["native", "tool", "prompted"]
"""How an answer of a type is asked for: by the endpoint's structured output (the schema is sent as
`composition.output_schema`), by a tool that the model calls with its answer, or by words in the prompt."""

_ANY_MODE: tuple[OutputMode, ...] = ("prompted", "tool", "native")


def fitted(model: Model, composition: Composition) -> Composition:
    """Return what of a composition a model sends: all of it, unless it says otherwise.

    Raises:
        ModelRequestError: It would not send any of it.
    """
    fit: Callable[[Composition], Composition] | None = getattr(model, "fitted", None)
    if fit is None:
        return composition
    return fit(composition)


def text_tokens_of(model: Model) -> TextTokens | None:
    """Return what counts the text that a model is sent; None where no chat template of ours writes it."""
    return getattr(model, "text_tokens", None)


def output_modes_of(model: Model) -> tuple[OutputMode, ...]:
    """Return the ways in which a model can be asked for an answer of a type, the one to take first.

    Raises:
        AgentDefinitionError: Its `output_modes` are something else.
    """
    modes: tuple[OutputMode, ...] = getattr(model, "output_modes", _ANY_MODE)
    if not isinstance(modes, tuple) or not modes or any(mode not in _ANY_MODE for mode in modes):
        raise AgentDefinitionError(
            f"model {model.name!r}: its output_modes must be a tuple of {', '.join(map(repr, _ANY_MODE))}, "
            f"got {modes!r:.80}",
            name="output_modes",
        )
    return modes
