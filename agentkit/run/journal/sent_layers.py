"""`SentLayers`: tokens and money of the layers of one prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from agentkit.models.model import NO_USAGE, Usage
from agentkit.models.prices import Price
from agentkit_prompts.composition.composition import Composition


class SentLayers(NamedTuple):
    """Tokens and money of the layers of a composition."""

    tokens: Mapping[str, int]
    """Tokens by the path of the layer, such as `system[0]` or `conversation`; see `Composition.explain`."""
    trimmed: Sequence[str] = ()
    """Layers that the budget trimmed or dropped."""
    money: float | None = None
    """US dollars of the prompt, as part of the cost of the reply; None if the price is unknown."""

    @classmethod
    def of(cls, composition: Composition, usage: Usage = NO_USAGE, price: Price | None = None) -> Self:
        """Return the layers of a composition, with the cost of the prompt if `price` and `usage.money` are known."""
        rows = composition.explain()
        tokens: dict[str, int] = {}
        for row in rows:
            tokens[row.layer] = tokens.get(row.layer, 0) + row.tokens
        trimmed = [row.layer for row in rows if row.status != "kept"]
        if price is None or usage.money is None:
            return cls(tokens, trimmed)
        prompt = Usage(usage.input_tokens, 0, usage.cached_tokens)
        # The price is of the first model, but a cheaper fallback may have answered.
        return cls(tokens, trimmed, min(price.of(prompt), usage.money))

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Return the layers in the data of a journal entry.

        Raises:
            TypeError: A field is missing, or has a value of another type.
        """
        try:
            tokens, trimmed, money = data["tokens"], data["trimmed"], data["money"]
            if all(type(count) is int for count in tokens.values()) and all(
                isinstance(layer, str) for layer in trimmed
            ):
                return cls(tokens, trimmed, money)
        except (KeyError, TypeError, AttributeError):
            pass
        raise TypeError("layers: expected an object with `tokens` by layer, a list `trimmed`, and `money`")
