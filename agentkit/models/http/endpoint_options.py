"""`EndpointOptions`: the options of every model with an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TypedDict

from agentkit.errors import AgentDefinitionError
from agentkit.models.http.key_function import ApiKey
from agentkit.models.prices import Price
from agentkit.models.settings import ModelSettings
from agentkit_prompts.errors import Problem, Problems, brief, kind_of, raise_problems

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


def option_problems(options: Mapping[str, object]) -> Problems:
    """Return the problems of the numbers and of the price in the options of a model with an endpoint."""
    problems: Problems = []
    retries = options.get("max_retries", 0)
    if type(retries) is not int or retries < 0:
        problems.append(Problem("max_retries", f"expected a number, 0 or more, got {brief(retries, 40)}"))
    concurrency = options.get("max_concurrency")
    if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
        text = f"expected a number of requests, 1 or more, got {brief(concurrency, 40)}"
        problems.append(Problem("max_concurrency", text))
    price = options.get("price")
    if price is not None and not isinstance(price, Price):
        text = f"expected a Price, such as Price(input=0.25, output=2.0), got {kind_of(price)}"
        problems.append(Problem("price", text))
    return problems


def refuse_options(title: str, problems: Problems) -> None:
    """Raise an AgentDefinitionError that lists the problems of options; do nothing without problems."""
    raise_problems(AgentDefinitionError, title, problems, name=", ".join([problem.place for problem in problems]))
