"""What models cost, in US dollars. The rows are in `prices.json`; nothing is asked for over a network."""

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
    """US dollars for a million tokens.

    Raises:
        AgentDefinitionError: One of them is negative, no number, or larger than any price.
    """

    input: _Dollars
    """Of the prompt."""
    output: _Dollars
    """Of the reply."""
    cached: _Dollars | None = None
    """Of the prompt, where it came from the endpoint's prompt cache; None where that is no cheaper."""
    long: tuple[CountOrZero, Price] | None = None
    """From how many tokens of the prompt on the whole request has another price, and which."""

    def of(self, usage: Usage) -> float:
        """Return what a request cost, in US dollars."""
        if self.long is not None and usage.input_tokens > self.long[0]:
            return self.long[1].of(usage)
        # Without a separate price, a cached token costs as much as any input token.
        cached = 0
        if self.cached is not None:
            cached = min(usage.cached_tokens, usage.input_tokens)
        fresh = usage.input_tokens - cached
        return (fresh * self.input + cached * (self.cached or 0) + usage.output_tokens * self.output) / _MILLION


def price_of(model: Model) -> Price | None:
    """Return the price of a model: what it has as `price`; None where it is not known.

    Raises:
        AgentDefinitionError: Its price is something else.
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
    """Return the price of a model, or of a dated version of it, at the endpoint of a provider; None if it is unknown.

    Elsewhere a model of the same name may cost something else.
    """
    rows = _rows()
    return rows.get((host, model)) or rows.get((host, _SNAPSHOT.sub("", model)))


@lru_cache(maxsize=1)
def _rows() -> Mapping[tuple[str, str], Price]:
    rows = json.loads(Path(__file__).with_name("prices.json").read_text("utf-8"))
    return {(row["host"], row["model"]): _price(row) for row in rows}


def _price(row: Mapping[str, Any]) -> Price:
    long = row.get("long")
    return Price(row["input"], row["output"], row.get("cached"), (long["tokens"], _price(long)) if long else None)
