"""Prices of models in US dollars, read from `prices.json` and the package `genai-prices` without network access."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from agentkit.errors import AgentDefinitionError, AgentError, UnknownOption
from agentkit.models.model import Model, Usage
from agentkit.models.providers import provider_at
from agentkit_prompts.options import CountOrZero, options

_MILLION = 1_000_000
Dollars: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000_000)]
_SNAPSHOT = re.compile(r"-(\d{4}-\d\d-\d\d|\d{8}|latest)$")


@options(AgentDefinitionError, unknown=UnknownOption)
class Price:
    """Price of a million tokens in US dollars.

    Raises:
        AgentDefinitionError: A price is negative, above the maximum, or not a number.
    """

    input: Dollars
    """Price of the prompt."""
    output: Dollars
    """Price of the reply."""
    cached: Dollars | None = None
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


def price_problem(model: Model) -> str:
    """Return the text of the problem that the price of a model is unknown, with a remedy."""
    return (
        f"the price of the model {model.name!r} is unknown: pass the price in US dollars per million tokens to the "
        "model, such as price=Price(input=0.25, output=2.0, cached=0.025), or write it next to the name of the model "
        "in an agent file, such as `price: {input: 0.25, output: 2.0, cached: 0.025}`; a custom class needs an "
        "attribute `price`"
    )


def check_prices(error: type[AgentError], place: str, models: Iterable[Model]) -> None:
    """Check that the prices of models are known, before a limit on money applies to them.

    Raises:
        AgentError: Of the class `error`: prices are unknown. The error lists all these models.
    """
    problems = {model.name: price_problem(model) for model in models if price_of(model) is None}
    if problems:
        raise error(f"{place}: {'; '.join(problems.values())}", name="money")


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

    The first source is `prices.json`, the second the package `genai-prices`, if it is installed.

    The price depends on the host, because other endpoints may charge other prices for the same model name.
    """
    rows = _rows()
    return rows.get((host, model)) or rows.get((host, _SNAPSHOT.sub("", model))) or _packaged_price(host, model)


@lru_cache(maxsize=1)
def _rows() -> Mapping[tuple[str, str], Price]:
    rows = json.loads(Path(__file__).with_name("prices.json").read_text("utf-8"))
    return {(row["host"], row["model"]): read_price(row) for row in rows}


def _packaged_price(host: str, model: str) -> Price | None:
    """Return the current price in `genai-prices`; None without the package, or for a custom server."""
    # The import of the package takes 200 ms: it is left out for servers that have no price.
    if provider_at(host) is None:
        return None
    try:
        snapshot: Any = import_module("genai_prices.data_snapshot").get_snapshot()
    except ImportError:
        return None
    # Vertex AI names a model with its publisher.
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        try:
            _, info = snapshot.find_provider_model(name, None, None, f"https://{host}")
            break
        except LookupError:
            continue
    else:
        return None
    prices = info.get_prices(datetime.now(UTC))
    return _converted(prices.input_mtok, prices.output_mtok, prices.cache_read_mtok)


def _converted(input_price: Any, output_price: Any, cached_price: Any) -> Price | None:
    """Return a price for prices of `genai-prices`, each a number, a number with tiers, or None.

    Prices with one tier are a price with a `long` price; prices with more tiers cannot be represented.
    """
    all_prices = (input_price, output_price, cached_price)
    starts = {tier.start for price in all_prices for tier in getattr(price, "tiers", ())}
    if input_price is None or output_price is None or len(starts) > 1:
        return None
    base, long = ([_amount(price, is_long=is_long) for price in all_prices] for is_long in (False, True))
    if not starts:
        return Price(base[0] or 0, base[1] or 0, base[2])
    return Price(base[0] or 0, base[1] or 0, base[2], (starts.pop(), Price(long[0] or 0, long[1] or 0, long[2])))


def _amount(price: Any, *, is_long: bool) -> float | None:
    """Return the price in dollars of the base, or of the only tier."""
    if price is None:
        return None
    tiers = getattr(price, "tiers", ())
    if is_long and tiers:
        return float(tiers[0].price)
    return float(getattr(price, "base", price))


def read_price(row: Mapping[str, Any]) -> Price:
    """Return the price of a row of `prices.json`, or of an agent file."""
    long = None
    if "long" in row:
        long = (row["long"]["tokens"], read_price(row["long"]))
    return Price(row["input"], row["output"], row.get("cached"), long)
