"""Attributes of spans that describe a model: its provider, name, server and settings."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from agentkit.models.fallback import FallbackModel
from agentkit.models.model import Model
from agentkit.models.provider import Provider
from agentkit.models.providers import OTHER_HOSTS, provider_at
from agentkit.models.redacting.redacting_model import RedactingModel

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "seed": "seed",
    "effort": "reasoning.level",
}


def model_attributes(model: Model) -> dict[str, Any]:
    """Return provider, name and server of a model, for spans and metrics.

    A `FallbackModel` has the attributes of its first model: the response names the model that replied. A
    `RedactingModel` has the attributes of its model.
    """
    while isinstance(model, FallbackModel | RedactingModel):
        model = model.models[0]
    address = _address(getattr(model, "host", None))
    attributes = {"gen_ai.provider.name": _provider(model, address or ""), "gen_ai.request.model": model.name}
    if address:
        attributes["server.address"] = address
        port = getattr(model, "port", None)
        if port is not None:
            attributes["server.port"] = port
    return attributes


def _address(host: object) -> str | None:
    """Return the address in a host, which can have a port; None if the text is no host."""
    if not isinstance(host, str):
        return None
    # The host of a custom model can be any text, and an observation must not fail a run.
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _provider(model: Model, address: str) -> str:
    """Return the provider of the server of a model, the provider of its request format, or the name of its class."""
    for pattern, name in OTHER_HOSTS.items():
        if fnmatchcase(address, pattern):
            return name
    at_host = provider_at(address)
    if at_host is not None:
        return at_host.in_spans
    row = getattr(model, "provider", None)
    names = [kind.__name__ for kind in type(model).__mro__]
    # A row with a model class describes this class only, not other classes with an endpoint.
    if isinstance(row, Provider) and (not row.model or row.model in names):
        return row.in_spans
    return names[0]


def settings_attributes(model: Model) -> dict[str, Any]:
    """Return the settings of a model, by their names in the semantic conventions."""
    settings = getattr(model, "settings", None)
    values = {f"gen_ai.request.{name}": getattr(settings, field, None) for field, name in _SETTINGS.items()}
    stop = getattr(settings, "stop", None)
    if isinstance(stop, str):
        stop = [stop]
    if stop is not None:
        values["gen_ai.request.stop_sequences"] = [*stop]
    return {name: value for name, value in values.items() if value is not None}
