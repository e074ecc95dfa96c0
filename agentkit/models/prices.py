"""Prices of models in US dollars, read from `prices.json` without network access."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.models.model import Model, Usage
from agentkit_prompts.options import CountOrZero, options

__all__ = ["Price", "known_price", "price_of"]

_MILLION = 1_000_000
_Dollars: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000_000)]
_SNAPSHOT = re.compile(r"-(\d{4}-\d\d-\d\d|\d{8}|latest)$")


@options(AgentDefinitionError, unknown=UnknownOption)
class Price:
    """Price of a million tokens in US dollars.

    Raises:
        AgentDefinitionError: A price is negative, above the maximum, or not a number.
    """

    input: _Dollars
    """Price of the prompt."""
    output: _Dollars
    """Price of the reply."""
    cached: _Dollars | None = None
    """Price of prompt tokens from the prompt cache of the endpoint; None if cached tokens cost the same."""
    long: tuple[CountOrZero, Price] | None = None
    """Threshold in tokens of the prompt, and the price of the whole request if the prompt has more tokens."""

    def of(self, usage: Usage) -> float:
        """Return the cost of a request in US dollars."""
        if self.long is not None and usage.input_tokens > self.long[0]:
            return self.long[1].of(usage)
        # Without a separate price, a cached token costs as much as any input token.
        cached_tokens = 0
        if self.cached is not None:
            cached_tokens = min(usage.cached_tokens, usage.input_tokens)
        fresh = usage.input_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * (self.cached or 0) + usage.output_tokens * self.output) / _MILLION


def price_of(model: Model) -> Price | None:
    """Return the attribute `price` of a model; None if the price is unknown.

    Raises:
        AgentDefinitionError: The attribute is not a `Price`.
    """
    price = getattr(model, "price", None)
    if price is not None and not isinstance(price, Price):
        raise AgentDefinitionError(
            f"model {model.name!r}: its price must be a Price, such as Price(input=0.25, output=2.0), got "
            f"{type(price).__name__}",
            name="price",
            value=type(price).__name__,
        )
    return price


@lru_cache(maxsize=256)
def known_price(host: str, model: str) -> Price | None:
    """Return the price of a model, a dated snapshot or a `-latest` name at an endpoint; None if it is unknown.

    The price depends on the host, because other endpoints may charge other prices for the same model name.
    """
    rows = _rows()
    return rows.get((host, model)) or rows.get((host, _SNAPSHOT.sub("", model)))


@lru_cache(maxsize=1)
def _rows() -> Mapping[tuple[str, str], Price]:
    rows = json.loads(Path(__file__).with_name("prices.json").read_text("utf-8"))
    return {(row["host"], row["model"]): _price(row) for row in rows}


def _price(row: Mapping[str, Any]) -> Price:
    long = None
    if "long" in row:
        long = (row["long"]["tokens"], _price(row["long"]))
    return Price(row["input"], row["output"], row.get("cached"), long)
