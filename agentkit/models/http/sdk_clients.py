"""Clients of the official SDKs, one per event loop, with key and base URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from agentkit.errors import AgentDefinitionError
from agentkit.models.http.key_function import ApiKey, KeyFunction
from agentkit.models.http.reply_body import bounded
from agentkit.models.model_errors import ModelAuthError, ModelError, ModelRequestError
from agentkit.models.provider import Provider
from agentkit.models.provider_addresses import host_of, is_address
from agentkit_prompts.credentials import BareAddress
from agentkit_prompts.errors import check_types
from agentkit_prompts.extras import install
from agentkit_prompts.system.cut_handshakes import CutHandshake
from agentkit_prompts.system.per_loop import PerLoop

if TYPE_CHECKING:
    from ssl import SSLContext

    from httpx2 import Request

_PORTS = {"https": 443, "http": 80}
_KEY = re.compile(r"[!-~]*")
_NO_KEY = "no-key"
_CONNECT_SECONDS = 5.0
_FIRST_URL = "agentkit_first_url"
"""Extension of a request: its address before redirects."""
_HEADERS_FOR_OTHERS = frozenset(
    ("host", "accept", "accept-encoding", "anthropic-version", "connection", "content-length", "content-type")
)
"""Headers without secrets, which another host receives after a redirect too."""


class Sdk(NamedTuple):
    """An official SDK."""

    module: str
    client: str
    """Name of its client class."""
    headers: Mapping[str, str]
    """Headers of requests, with `KEY` instead of the key."""


OPENAI = Sdk("openai", "AsyncOpenAI", {"authorization": "Bearer KEY"})
ANTHROPIC = Sdk("anthropic", "AsyncAnthropic", {"x-api-key": "KEY", "anthropic-version": "2023-06-01"})


class Clients:
    """The clients of one model, shared by its copies with other settings.

    Raises:
        ModelRequestError: `base_url` is not an http address.
    """

    def __init__(
        self, sdk: Sdk, provider: Provider, model: str, api_key: ApiKey | None, base_url: str | None, custom: Any
    ) -> None:
        key = api_key
        if callable(key):
            key = None
        check_types(
            AgentDefinitionError,
            "model",
            model=(model, str, "the name of a model"),
            api_key=(key, (str, type(None)), "text, or a function that returns a key"),
            base_url=(base_url, (str, type(None)), "an address such as http://localhost:8000/v1"),
        )
        refuse_address(model)
        if custom is not None and (
            isinstance(custom, type) or not (hasattr(custom, "base_url") and hasattr(custom, "api_key"))
        ):
            raise AgentDefinitionError(
                f"model {model}: client: expected a client of its SDK, got {type(custom).__name__}",
                name="client",
                value=type(custom).__name__,
            )
        self.sdk = sdk
        self.custom = custom
        """Client that the caller has passed, if any."""
        self._provider = provider
        self._model = model
        self._api_key = key
        self._key_function: KeyFunction | None = None
        if callable(api_key):
            self._key_function = KeyFunction(api_key, model)
        self._base_url = base_url
        self.requests_usage = True
        """True until the server has refused to send the usage of streams, as older servers do."""
        self._clients: PerLoop[Any] = PerLoop(_close)
        if base_url is not None:
            self._checked_url(base_url)

    @property
    def host(self) -> str:
        """Host and port of the endpoint, without credentials."""
        return host_of(self._url)

    @property
    def port(self) -> int | None:
        """Port of the endpoint, also if its address does not name the port; None if the address is invalid."""
        try:
            parts = urlsplit(self._url)
            return parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            return None

    @property
    def _url(self) -> str:
        if self.custom is not None:
            return str(self.custom.base_url)
        return self._endpoint()

    @property
    def bare_url(self) -> str:
        """The base URL without credentials."""
        return BareAddress.of(self._url).url

    @property
    def is_official(self) -> bool:
        """True if the requests go to a host of the provider."""
        return self._provider.has_host(self.host)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key of the requests, or the latest keys of a function; empty without a key."""
        if self.custom is not None:
            # The key of a custom client may be a function.
            return (self.custom.api_key.strip(),) if isinstance(self.custom.api_key, str) else ()
        if self._key_function is not None:
            return self._key_function.latest
        return (self._key,)

    @property
    def _key(self) -> str:
        return (self._api_key or "").strip() or self._provider.key

    @property
    def contains_secret(self) -> bool:
        """True if the arguments contain a key, a client or a password."""
        has_key = bool(self._api_key) or self._key_function is not None
        return has_key or self.custom is not None or "@" in (self._base_url or "")

    @property
    def address(self) -> str:
        """Name of the base URL for errors, with its environment variable if the variable is read."""
        if self.custom is not None:
            return "base_url of the client"
        if self._base_url is not None and self._base_url.strip() != self._provider.address_value:
            return "base_url"
        return f"base_url ({self._provider.address_variable})"

    def address_hint(self, path: str) -> str:
        """Return the name of the base URL and its required end before the path of a request, for errors."""
        hint = f"{self.address} ends where {path} begins"
        host = self.host
        # Hosts of providers have other paths.
        if not host or self.is_official or path.startswith("/v1"):
            return hint
        parts = urlsplit(self._url)
        if parts.path.strip("/"):
            return hint
        return f"{hint}, such as {parts.scheme}://{host}/v1"

    @property
    def _address_name(self) -> str:
        """The argument or the environment variable that contains the base URL."""
        if self._base_url is not None:
            return "base_url"
        return self._provider.address_variable

    async def client(self) -> Any:
        """Return the client of the running event loop: connections cannot move between loops."""
        if self.custom is not None:
            return self.custom
        return await self._clients.value(self._new)

    async def aclose(self) -> None:
        """Close the connections that the running event loop opened."""
        await self._clients.aclose()

    async def options(self, seconds: float, headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the options of one request, without retries by the SDK.

        Raises:
            ModelAuthError: The function of the key fails, or returns no key.
        """
        from httpx2 import Timeout

        if self._key_function is not None and self.custom is None:
            key = self._checked_key(await self._key_function.key())
            # The header of the key depends on the version of the SDK.
            sent: Mapping[str, str] = (await self.client()).auth_headers
            headers = {**{name: value.replace(_NO_KEY, key) for name, value in sent.items()}, **headers}

        options: dict[str, Any] = {
            "timeout": Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
            "max_retries": 0,
        }
        if headers:
            options["headers"] = dict(headers)
        return options

    def _new(self) -> Any:
        sdk = self.sdk
        try:
            client_class = getattr(import_module(sdk.module), sdk.client)
            from httpx2 import AsyncClient, Limits
        except ImportError as error:
            raise ModelError(
                f"needs the {sdk.module} SDK: {install(sdk.module)}",
                model=self._model,
                name=sdk.module,
            ) from error
        key = self._sent_key()
        address = BareAddress.of(self._checked_url(self._endpoint()))
        return client_class(
            # The SDK must not retry: only the model knows if deltas were sent before an error.
            api_key=key,
            base_url=address.url,
            max_retries=0,
            http_client=AsyncClient(
                auth=address.auth,
                verify=_certificates(),
                follow_redirects=True,
                # Concurrent requests are limited by `max_concurrency` of the model, not by the pool.
                limits=Limits(max_connections=1000, max_keepalive_connections=100),
                event_hooks={"request": [_prepare], "response": [bounded]},
            ),
        )

    def _endpoint(self) -> str:
        return self._provider.base_url(self._base_url)

    def _sent_key(self) -> str:
        """Return the key, or a placeholder for a server that needs no key.

        Raises:
            ModelAuthError: The key is missing or invalid.
            ModelRequestError: A part of the address is missing.
        """
        provider = self._provider
        key = ""
        # A function is called for each request.
        if self._key_function is None:
            key = self._key
        endpoint = self._endpoint()
        is_missing = not key and self._key_function is None and provider.requires_key(endpoint)
        if not endpoint and (variable := provider.invalid_variable):
            raise ModelRequestError(
                f"{variable} is a part of the address of the provider: expected letters, digits, '-', '.' and ':'",
                model=self._model,
                name=variable,
            )
        if not endpoint:
            variables = provider.missing_variables
            problem = f"the address is missing: set {' and '.join(variables)} (or pass base_url=)"
            if is_missing:
                raise self._key_error(
                    f"{problem}, and {' or '.join(provider.keys)} (or pass api_key=)", provider.keys[0]
                )
            raise ModelRequestError(problem, model=self._model, name=variables[0].partition(" ")[0])
        if is_missing:
            raise self._key_error(
                f"the API key is missing: set {' or '.join(provider.keys)} (or pass api_key=), or set "
                f"{provider.addresses[0]} (base_url=) to the address of a server that needs no key",
                provider.keys[0],
            )
        return self._checked_key(key) or _NO_KEY

    def _checked_key(self, key: str) -> str:
        if not _KEY.fullmatch(key):
            raise self._key_error(
                f"the API key ({self._provider.key_variable} or api_key=) contains a space, a line break or a "
                "character beyond ASCII, which is invalid in a header: copy the key again",
                "api_key",
            )
        return key

    def _key_error(self, problem: str, name: str) -> ModelAuthError:
        return ModelAuthError(problem, model=self._model, host=self.host, name=name)

    def _checked_url(self, url: str) -> str:
        if not _is_http_url(url):
            raise ModelRequestError(
                f"{self.address} must be an address such as http://localhost:8000/v1, got another text of {len(url)} "
                "characters, which is not shown, because it may be a key",
                model=self._model,
                name=self._address_name,
            )
        for mark in ("?", "#"):
            if mark in url:
                raise ModelRequestError(
                    f"{self.address} has a query or a fragment, which may contain a secret: pass the address of "
                    f"{host_of(url)} without it, and a key as api_key=; for other parameters pass a custom client=",
                    model=self._model,
                    name=self._address_name,
                    value=mark,
                )
        return url


def refuse_address(model: str) -> None:
    """Refuse an address as the name of a model.

    Raises:
        AgentDefinitionError: The name is an address, which is not shown, because it may contain a password.
    """
    if is_address(model):
        raise AgentDefinitionError(
            'model: expected the name of a model, such as "qwen3", got an address: pass the address as base_url=',
            name="model",
        )


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # An incomplete IPv6 address, or a port that is not a number.
        return False


async def _close(client: Any) -> None:
    await client.close()


async def _prepare(request: Request) -> None:
    """Prepare a request, or the request to the address of a redirect, which has the extensions of the first request."""
    request.extensions["trace"] = CutHandshake()
    first, url = request.extensions.setdefault(_FIRST_URL, request.url), request.url
    is_downgraded = (first.scheme, url.scheme) == ("https", "http")
    # The client removes only the header `Authorization` if a redirect leads to another server.
    if (first.host, first.port) != (url.host, url.port) or is_downgraded:
        for name in request.headers.keys() - _HEADERS_FOR_OTHERS:
            del request.headers[name]


@lru_cache(maxsize=1)
def _certificates() -> SSLContext:
    """Read the certificates once: reading them is the main cost of a client, and `run_sync` creates one per call."""
    from httpx2 import create_ssl_context

    return create_ssl_context()
