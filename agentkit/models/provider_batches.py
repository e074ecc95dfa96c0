"""The batch APIs by the classes of models."""

from __future__ import annotations

from collections.abc import Mapping

from agentkit.models.anthropic.anthropic_batches import AnthropicBatches
from agentkit.models.anthropic.anthropic_model import AnthropicModel
from agentkit.models.http.batches import Batches
from agentkit.models.model import Model
from agentkit.models.openai.openai_batches import OpenAIBatches
from agentkit.models.openai.openai_chat import OpenAIModel
from agentkit.models.openai.openai_responses import OpenAIResponsesModel
from agentkit.models.prices import Price

_SHARE = 0.5
"""Price of a request in a batch, as a share of its price: OpenAI and Anthropic document half the price."""
_BATCHES: Mapping[type, type[Batches]] = {
    OpenAIModel: OpenAIBatches,
    OpenAIResponsesModel: OpenAIBatches,
    AnthropicModel: AnthropicBatches,
}


def batches_of(model: Model) -> Batches | None:
    """Return the client of the batch API of a model; None if the model has no batch API."""
    batches = _BATCHES.get(type(model))
    if batches is None:
        return None
    return batches(model)  # type: ignore[arg-type]  # the classes in the table are endpoint models


def batch_price(price: Price | None) -> Price | None:
    """Return the price in a batch; None if the price is unknown."""
    if price is None:
        return None
    return _halved(price)


def _halved(price: Price) -> Price:
    cached, long = price.cached, price.long
    if cached is not None:
        cached *= _SHARE
    if long is not None:
        long = (long[0], _halved(long[1]))
    return Price(input=price.input * _SHARE, output=price.output * _SHARE, cached=cached, long=long)
