"""Clients of the official SDKs, one per event loop, with key and base URL."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from agentkit.errors import AgentDefinitionError
from agentkit.models.http.reply_body import bounded
from agentkit.models.model_errors import ModelAuthError, ModelError, ModelRequestError
from agentkit_prompts.credentials import BareAddress
from agentkit_prompts.errors import check_types
from agentkit_prompts.system.cut_handshakes import CutHandshake
from agentkit_prompts.system.per_loop import PerLoop

if TYPE_CHECKING:
    from ssl import SSLContext

    from httpx2 import Request

__all__ = ["ANTHROPIC", "OPENAI", "Clients", "Sdk"]

_PORTS = {"https": 443, "http": 80}
_KEY = re.compile(r"[!-~]*")
_NO_KEY = "no-key"
_CONNECT_SECONDS = 5.0


class Sdk(NamedTuple):
    """An official SDK and its environment variables."""

    module: str
    client: str
    """Name of its client class."""
    key: str
    """Environment variable of the key."""
    url: str
    """Environment variable of the base URL; empty if there is only the official base URL."""
    official: str
    """The official base URL."""
    headers: Mapping[str, str] = {"authorization": "Bearer KEY"}
    """Headers of requests, with `KEY` instead of the key."""


OPENAI = Sdk("openai", "AsyncOpenAI", "OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1")
ANTHROPIC = Sdk(
    "anthropic",
    "AsyncAnthropic",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "https://api.anthropic.com",
    {"x-api-key": "KEY", "anthropic-version": "2023-06-01"},
)


class Clients:
    """The clients of one model, shared by its copies with other settings.

    Raises:
        ModelRequestError: `base_url` is not an http address.
    """

    def __init__(self, sdk: Sdk, model: str, api_key: str | None, base_url: str | None, custom: Any) -> None:
        check_types(
            AgentDefinitionError,
            "model",
            model=(model, str, "the name of a model"),
            api_key=(api_key, (str, type(None)), "text"),
            base_url=(base_url, (str, type(None)), "an address such as http://localhost:8000/v1"),
        )
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
        self._model = model
        self._api_key = api_key
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
        """True if the base URL is the official base URL of the SDK."""
        return self.host == host_of(self.sdk.official)

    @property
    def key(self) -> str:
        """The key of the requests; empty without a key."""
        key = self._api_key or os.environ.get(self.sdk.key)
        if self.custom is not None:
            key = self.custom.api_key
        # The key of a custom client may be a function.
        if isinstance(key, str):
            return key.strip()
        return ""

    @property
    def contains_secret(self) -> bool:
        """True if the arguments contain a key, a client or a password."""
        return bool(self._api_key) or self.custom is not None or "@" in (self._base_url or "")

    @property
    def address(self) -> str:
        """Names of the argument and the environment variable of the base URL, for errors."""
        if self.sdk.url:
            return f"base_url ({self.sdk.url})"
        return "base_url"

    @property
    def _address_name(self) -> str:
        """The argument or the environment variable that contains the base URL."""
        if self._base_url is not None:
            return "base_url"
        return self.sdk.url

    async def client(self) -> Any:
        """Return the client of the running event loop: connections cannot move between loops."""
        if self.custom is not None:
            return self.custom
        return await self._clients.value(self._new)

    async def aclose(self) -> None:
        """Close the connections that the running event loop opened."""
        await self._clients.aclose()

    def options(self, seconds: float, headers: dict[str, str]) -> dict[str, Any]:
        """Return the options of one request, without retries by the SDK."""
        from httpx2 import Timeout

        options: dict[str, Any] = {
            "timeout": Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
            "max_retries": 0,
        }
        if headers:
            options["headers"] = headers
        return options

    def _new(self) -> Any:
        sdk = self.sdk
        try:
            client_class = getattr(import_module(sdk.module), sdk.client)
            from httpx2 import AsyncClient, Limits
        except ImportError as error:
            raise ModelError(
                f"needs the {sdk.module} SDK: pip install 'agentkit-prompt-tree[{sdk.module}]'",
                model=self._model,
                name=sdk.module,
            ) from error
        address = BareAddress.of(self._checked_url(self._endpoint()))
        return client_class(
            # The SDK must not retry: only the model knows if deltas were sent before an error.
            api_key=self._sent_key(),
            base_url=address.url,
            max_retries=0,
            http_client=AsyncClient(
                auth=address.auth,
                verify=_certificates(),
                follow_redirects=True,
                # Concurrent requests are limited by `max_concurrency` of the model, not by the pool.
                limits=Limits(max_connections=1000, max_keepalive_connections=100),
                event_hooks={"request": [_watch_handshake], "response": [bounded]},
            ),
        )

    def _endpoint(self) -> str:
        from_environment = None
        if self.sdk.url:
            from_environment = os.environ.get(self.sdk.url)
        return self._base_url or from_environment or self.sdk.official

    def _sent_key(self) -> str:
        sdk = self.sdk
        key = (self._api_key or os.environ.get(sdk.key) or "").strip()
        if not key and self._endpoint() == sdk.official:
            url_name = "base_url="
            if sdk.url:
                url_name = f"{sdk.url} (base_url=)"
            raise ModelAuthError(
                f"the API key is missing: set {sdk.key} (or pass api_key=), or set {url_name} to the address of a "
                "server that needs no key",
                model=self._model,
                host=self.host,
                name=sdk.key,
            )
        if not _KEY.fullmatch(key):
            raise ModelAuthError(
                f"the API key ({sdk.key} or api_key=) contains a space, a line break or a character beyond ASCII, "
                "which is invalid in a header: copy the key again",
                model=self._model,
                host=self.host,
                name="api_key",
            )
        return key or _NO_KEY

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


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # An incomplete IPv6 address, or a port that is not a number.
        return False


async def _close(client: Any) -> None:
    await client.close()


async def _watch_handshake(request: Request) -> None:
    request.extensions["trace"] = CutHandshake()


@lru_cache(maxsize=1)
def _certificates() -> SSLContext:
    """Read the certificates once: reading them is the main cost of a client, and `run_sync` creates one per call."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


def host_of(url: str) -> str:
    """Return host and port of an address, without credentials, path, query and fragment; empty if it is invalid."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # An incomplete IPv6 address, or a port that is not a number.
        return ""
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if port is None:
        return host
    return f"{host}:{port}"
