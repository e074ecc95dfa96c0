"""`EndpointOptions`: the options of every model with an endpoint."""

from __future__ import annotations

from dataclasses import fields
from typing import TypedDict

from agentkit.models.http.key_function import ApiKey
from agentkit.models.prices import Price
from agentkit.models.settings import ModelSettings

OF_SETTINGS = {field.name: "settings" for field in fields(ModelSettings)}
"""Names of options that belong into `settings=ModelSettings(...)`."""


class EndpointOptions(TypedDict, total=False):
    """Optional arguments of every model with an endpoint."""

    api_key: ApiKey | None
    """API key, or a function, sync or async, that returns the key of each request; by default the key in the
    environment, read at the first request. Custom servers may need no key."""
    base_url: str | None
    """Base URL of the endpoint; by default the URL in the environment, or else the URL of the provider."""
    settings: ModelSettings | None
    """Settings of the model."""
    max_retries: int
    """Maximum retries (2 by default) after status 408, 409, 429 or 5xx, a failed connection, or a stream that was cut
    before its first delta."""
    max_concurrency: int | None
    """Maximum concurrent requests; further requests wait."""
    price: Price | None
    """Price for `Limits(money=)` and `result.cost`; by default the price in `prices.json`, or in the package
    `genai-prices` if it is installed. Both contain prices of the endpoints of providers only."""
