"""The texts of a prompt that a redacting model does not receive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentkit.models.abilities import model_path
from agentkit.models.model import Model
from agentkit.models.redacting.placeholders import Redacted
from agentkit.models.redacting.redacting_model import RedactingModel
from agentkit_prompts.composition.composition import Composition

_MAX_LISTED = 50
"""Maximum number of listed texts of a layer."""

Json = dict[str, Any]


def sent_composition(model: Model, composition: Composition) -> tuple[Composition, frozenset[Redacted]]:
    """Return the composition that a model receives, and the texts that placeholders replace in it."""
    replaced: frozenset[Redacted] = frozenset()
    for each in model_path(model):
        if isinstance(each, RedactingModel):
            composition, texts = each.redacted(composition)
            replaced |= texts
    return composition, replaced


def redacted_layers(model: Model, composition: Composition) -> dict[str, list[Json]]:
    """Return the replaced texts of each layer, each with its `placeholder`, its `kind` and its `text`."""
    sent, items = sent_composition(model, composition)
    rows: dict[str, list[Json]] = {}
    if not items:
        return rows
    texts = sorted(items)
    for layer, text in _layer_texts(sent):
        listed = rows.setdefault(layer, [])
        for item in texts:
            row = item._asdict()
            if item.placeholder in text and row not in listed and len(listed) < _MAX_LISTED:
                listed.append(row)
    return {layer: listed for layer, listed in rows.items() if listed}


def _layer_texts(composition: Composition) -> Iterator[tuple[str, str]]:
    """Yield the texts of a composition, each with the row of the layer table to which it belongs."""
    for section in composition.sections:
        for path, _, rendered in section.fragments:
            yield path, rendered.text
    for layer, messages in (("conversation", composition.conversation), ("intermediate", composition.intermediate)):
        texts = [
            text for message in messages for text in (message.text, *[call.arguments for call in message.tool_calls])
        ]
        yield layer, "\n".join(texts)
    yield "tools", "\n".join([tool.json for tool in composition.tools])
