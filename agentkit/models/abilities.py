"""Optional attributes of a model: output modes, trimming of a composition and a token counter of its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from agentkit.errors import AgentDefinitionError
from agentkit.models.model_errors import MediaAsTextWarning
from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.composition.explain import media_as_names
from agentkit_prompts.context.parts import Media

if TYPE_CHECKING:
    from agentkit.models.model import Model
    from agentkit_prompts.composition.call_content import TextTokens
    from agentkit_prompts.composition.composition import Composition

OutputMode = Literal["native", "tool", "prompted"]
"""Way to request an answer of a type: structured output of the endpoint (the schema is sent as
`composition.output_schema`), a tool that the model calls with its answer, or instructions in the prompt."""

_ANY_MODE: tuple[OutputMode, ...] = ("prompted", "tool", "native")


def model_path(model: Model) -> list[Model]:
    """Return the models that the first request of a model passes: the model, then the first model of each wrapper.

    The last model sends the request; the models before it are fallbacks and models that redact.
    """
    path = [model]
    while inner := next(iter(getattr(path[-1], "models", ())), None):
        path.append(inner)
    return path


def fitted(model: Model, composition: Composition) -> Composition:
    """Return the part of a composition that the model accepts: the whole if the model has no method `fitted`.

    Raises:
        ModelRequestError: The model accepts no part of the composition.
    """
    trim: Callable[[Composition], Composition] | None = getattr(model, "fitted", None)
    if trim is None:
        return composition
    fitting = trim(composition)
    # Only the text of a chat template is sent.
    if fitting.text_tokens is not None and (media := media_of(fitting)):
        problem = f"model {model.name!r}: {media_as_names(media)}; send media to a model that reads them"
        warn(problem, MediaAsTextWarning)
    return fitting


def media_of(composition: Composition) -> list[Media]:
    """Return the media in the messages of a composition."""
    if not _may_have_media(composition):
        return []
    return [part for message in composition.messages for part in message.parts if isinstance(part, Media)]


def _may_have_media(composition: Composition) -> bool:
    """True if a message can contain media; reading all messages of a long conversation would be slow."""
    if composition.conversation.may_have_media or composition.intermediate.may_have_media:
        return True
    return any(section.media for section in composition.sections)


def text_tokens_of(model: Model) -> TextTokens | None:
    """Return the token counter of the text that a model receives; None if no chat template writes the text here."""
    return getattr(model, "text_tokens", None)


def requires_clock(model: Model) -> bool:
    """True if the chat template of a model cannot be rendered without a time."""
    sender = model_path(model)[-1]
    writer = getattr(sender, "writer", None) or sender  # an offline model has a model that writes the prompt
    return getattr(getattr(writer, "chat_template", None), "requires_clock", False)


def output_modes_of(model: Model) -> tuple[OutputMode, ...]:
    """Return the output modes of a model, the preferred mode first.

    Raises:
        AgentDefinitionError: `output_modes` of the model is not a tuple of output modes.
    """
    modes: tuple[OutputMode, ...] = getattr(model, "output_modes", _ANY_MODE)
    if not isinstance(modes, tuple) or not modes or any(mode not in _ANY_MODE for mode in modes):
        raise AgentDefinitionError(
            f"model {model.name!r}: its output_modes must be a tuple of {', '.join(map(repr, _ANY_MODE))}, "
            f"got {modes!r:.80}",
            name="output_modes",
        )
    return modes
