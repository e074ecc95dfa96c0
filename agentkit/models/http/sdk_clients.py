"""One SDK client per event loop: its key, its address, and what must not be shown of them."""

from __future__ import annotations

import os
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

_NO_KEY = "no-key"
_CONNECT_SECONDS = 5.0


class Sdk(NamedTuple):
    """An official SDK, and where it looks for its key and its address."""

    module: str
    client: str
    """Name of its client class."""
    key: str
    """Environment variable of the key."""
    url: str
    """Environment variable of the base URL; empty where only the official one is asked by default."""
    official: str
    """The base URL by default."""


OPENAI = Sdk("openai", "AsyncOpenAI", "OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1")
ANTHROPIC = Sdk("anthropic", "AsyncAnthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com")


class Clients:
    """The clients of one model, and of the same model with other settings.

    Raises:
        ModelRequestError: `base_url` is not an http address.
    """

    def __init__(self, sdk: Sdk, model: str, api_key: str | None, base_url: str | None, given: Any) -> None:
        check_types(
            AgentDefinitionError,
            "model",
            model=(model, str, "the name of a model"),
            api_key=(api_key, (str, type(None)), "text"),
            base_url=(base_url, (str, type(None)), "an address such as http://localhost:8000/v1"),
        )
        if given is not None and (
            isinstance(given, type) or not (hasattr(given, "base_url") and hasattr(given, "api_key"))
        ):
            raise AgentDefinitionError(
                f"model {model}: client: expected a client of its SDK, got {type(given).__name__}",
                name="client",
                value=type(given).__name__,
            )
        self.sdk = sdk
        self.given = given
        self._model = model
        self._api_key = api_key
        self._base_url = base_url
        self.requests_usage = True
        """Whether streams are asked for their usage; older servers refuse that."""
        self._clients: PerLoop[Any] = PerLoop(_close)
        if base_url is not None:
            self._checked(base_url)

    @property
    def host(self) -> str:
        """Host and port of the endpoint, without credentials."""
        return host_of(str(self.given.base_url) if self.given is not None else self._endpoint())

    @property
    def is_official(self) -> bool:
        """Whether the provider of the SDK itself is asked."""
        return self.host == host_of(self.sdk.official)

    @property
    def key(self) -> str:
        """The key that is sent, or empty text."""
        key = self.given.api_key if self.given is not None else self._api_key or os.environ.get(self.sdk.key)
        if isinstance(key, str):
            return key.strip()
        return ""

    @property
    def contains_secret(self) -> bool:
        """Whether a key, a client or a password is part of it."""
        return bool(self._api_key) or self.given is not None or "@" in (self._base_url or "")

    @property
    def address(self) -> str:
        """What gives the base URL."""
        if self.sdk.url:
            return f"base_url ({self.sdk.url})"
        return "base_url"

    @property
    def _address_name(self) -> str:
        """The argument or the environment variable that the base URL comes from."""
        if self._base_url is not None:
            return "base_url"
        return self.sdk.url

    async def client(self) -> Any:
        """Return the client of the running event loop: connections cannot move between loops."""
        if self.given is not None:
            return self.given
        return await self._clients.value(self._new)

    async def aclose(self) -> None:
        """Close the connections that the running event loop opened."""
        await self._clients.aclose()

    def options(self, seconds: float, headers: dict[str, str]) -> dict[str, Any]:
        """Return what one request is sent with; the SDK itself never tries again, we do."""
        from httpx2 import Timeout

        timeout = Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
        return {"timeout": timeout, "max_retries": 0, **({"headers": headers} if headers else {})}

    def _new(self) -> Any:
        sdk = self.sdk
        try:
            make = getattr(import_module(sdk.module), sdk.client)
            from httpx2 import AsyncClient, Limits
        except ImportError as error:
            raise ModelError(
                f"needs the {sdk.module} SDK: pip install 'agentkit-prompt-tree[{sdk.module}]'",
                model=self._model,
                name=sdk.module,
            ) from error
        address = BareAddress.of(self._checked(self._endpoint()))
        return make(
            # The SDK makes one attempt: only the model knows what was passed on before an error.
            api_key=self._sent_key(),
            base_url=address.url,
            max_retries=0,
            http_client=AsyncClient(
                auth=address.auth,
                verify=_certificates(),
                follow_redirects=True,
                # The limit of requests at once is `max_concurrency` of the model, not the pool.
                limits=Limits(max_connections=1000, max_keepalive_connections=100),
                event_hooks={"request": [_watch_handshake], "response": [bounded]},
            ),
        )

    def _endpoint(self) -> str:
        named = None
        if self.sdk.url:
            named = os.environ.get(self.sdk.url)
        return self._base_url or named or self.sdk.official

    def _sent_key(self) -> str:
        sdk = self.sdk
        key = (self._api_key or os.environ.get(sdk.key) or "").strip()
        if not key and self._endpoint() == sdk.official:
            elsewhere = "base_url="
            if sdk.url:
                elsewhere = f"{sdk.url} (base_url=)"
            raise ModelAuthError(
                f"there is no API key: set {sdk.key} (or pass api_key=), or set {elsewhere} to the address of a server "
                "that needs none",
                model=self._model,
                host=self.host,
                name=sdk.key,
            )
        if not all("!" <= character <= "~" for character in key):
            raise ModelAuthError(
                f"the API key ({sdk.key} or api_key=) holds a space, a line break or a character beyond ASCII, which "
                "no header can carry: copy it again",
                model=self._model,
                host=self.host,
                name="api_key",
            )
        return key or _NO_KEY

    def _checked(self, url: str) -> str:
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            if known and ("?" in url or "#" in url):
                raise ModelRequestError(
                    f"{self.address} has a query or a fragment, which may hold a secret: give the address of "
                    f"{host_of(url)} without, and a key as api_key=; to send more, give a client of yours as client=",
                    model=self._model,
                    name=self._address_name,
                    value="?" if "?" in url else "#",
                )
        except ValueError:
            # An unfinished IPv6 address, or a port that is no number.
            known = False
        if not known:
            raise ModelRequestError(
                f"{self.address} must be an address such as http://localhost:8000/v1, got something else of {len(url)} "
                "characters; it is not shown, as it may be a key",
                model=self._model,
                name=self._address_name,
            )
        return url


async def _close(client: Any) -> None:
    await client.close()


async def _watch_handshake(request: Request) -> None:
    request.extensions["trace"] = CutHandshake()


@lru_cache(maxsize=1)
def _certificates() -> SSLContext:
    """Read the certificates once: it is nearly all that a client costs, and `run_sync` needs one per call."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


def host_of(url: str) -> str:
    """Return host and port of an address, without credentials, path, query and fragment; empty for an invalid one."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # An unfinished IPv6 address, or a port that is no number.
        return ""
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if port is None:
        return host
    return f"{host}:{port}"
