"""`agentkit models`: lists the providers of models and their environment variables."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkit.cli.options import AsJson
from agentkit.cli.screen import note, put, put_json, put_table
from agentkit_prompts.errors import brief

if TYPE_CHECKING:
    from agentkit.models.provider import Provider


def models(
    at: Annotated[
        str | None, typer.Option(metavar="PROVIDER", help="List the models that the server of a provider offers.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the providers of models, their environment variables, and if a key is set.

    Nothing is sent without --at.

    Example: agentkit models
    """
    from agentkit.models.providers import PROVIDERS

    if at is not None:
        _put_served(at, as_json=as_json)
        return
    if as_json:
        put_json({"providers": [_form(row) for row in PROVIDERS.values()]})
        return
    put_table(
        ("provider", "key", "variable of the key", "address"),
        [(row.name, _state(row), _variables(row), _address(row)) for row in PROVIDERS.values()],
    )


def _put_served(provider: str, *, as_json: bool) -> None:
    """Print the models at the server of a provider.

    Raises:
        AgentDefinitionError: The provider is unknown.
        ModelError: The server cannot be reached, or refuses the request.
    """
    from agentkit.errors import AgentDefinitionError
    from agentkit.models.http.endpoint import EndpointModel
    from agentkit.models.model_names import model, unknown_provider
    from agentkit.models.providers import PROVIDERS

    if ":" in provider:
        advice = "set the variable of its address, such as VLLM_BASE_URL, and write --at vllm"
        message = (
            f"--at: expected a provider, such as groq, got {brief(provider)}; for a server at another address {advice}"
        )
        raise AgentDefinitionError(message, name="at")
    if provider not in PROVIDERS:
        raise AgentDefinitionError(f"--at: {unknown_provider(provider)}", name="at")
    # The request names no model: errors contain the name of the provider instead.
    model_name = f"{provider}:{provider}"
    if provider == "offline":
        model_name = provider
    endpoint = model(model_name)
    names: tuple[str, ...] = ()
    if isinstance(endpoint, EndpointModel):
        names = asyncio.run(endpoint.served_models())
    if as_json:
        put_json({"models": [f"{provider}:{name}" for name in names]})
        return
    for name in names:
        # One line for each model: a server can send any text.
        put(f"{provider}:{' '.join(name.split())}")
    if not names:
        note(f"the server of {provider} offers no model")


def _has_endpoint(row: Provider) -> bool:
    return row.model != "OfflineModel"


def _state(row: Provider) -> str:
    if not _has_endpoint(row):
        return ""
    if row.key:
        return "set"
    if row.requires_key(row.base_url()):
        return "missing"
    return "optional"


def _variables(row: Provider) -> str:
    if not _has_endpoint(row):
        return ""
    return row.key_variable if row.key else " or ".join(row.keys)


def _address(row: Provider) -> str:
    from agentkit.models.provider_addresses import shown_address

    if not _has_endpoint(row):
        return ""
    url = row.base_url()
    if not url:
        return f"set {' and '.join(row.missing_variables)}"
    return shown_address(url) or f"invalid: {row.address_variable}"


def _form(row: Provider) -> dict[str, Any]:
    from agentkit.models.provider_addresses import shown_address

    if not _has_endpoint(row):
        return {"name": row.name}
    return {
        "name": row.name,
        "key": _state(row),
        "key_variables": row.keys,
        "address": shown_address(row.base_url()),
        "address_variables": [*row.addresses, *(variable for part in row.parts for variable in part.variables)],
        "docs": row.docs,
    }
