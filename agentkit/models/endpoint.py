"""What every model behind an HTTP endpoint shares: one client per event loop, streaming, and typed errors."""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlsplit

from agentkit.models.model import OutputMode, Reply, passed_on
from agentkit.models.model_errors import (
    ModelAuthError,
    ModelError,
    ModelInterrupted,
    ModelRequestError,
    NetworkRefused,
    spellings,
)
from agentkit.models.prices import Price, known_price
from agentkit.models.reply_reader import ReplyReader
from agentkit.models.settings import NO_SETTINGS, Fields, ModelSettings, body_of, checked_settings, patched

if TYPE_CHECKING:
    from ssl import SSLContext

    from openai import AsyncOpenAI, AsyncStream

    from agentkit_prompts.composition.composition import Composition

__all__ = ["OFFICIAL", "EndpointModel", "host_of", "no_real_models", "secrets_of"]

OFFICIAL = "https://api.openai.com/v1"
"""Where requests go by default."""

_REFUSED: ContextVar[bool] = ContextVar("agentkit_no_real_models", default=False)
_NO_KEY = "no-key"
_CONNECT_SECONDS = 5.0
_SECONDS = 600.0
_MIN_SECRET = 8
"""Shorter keys are placeholders; taking them out of messages would only garble the words."""


class EndpointModel(ABC):
    """Talks to an endpoint through the official `openai` SDK; a subclass makes the body, and reads the reply.

    The arguments are those of `OpenAIModel`.
    """

    path: ClassVar[str]
    """Where requests go, behind the base URL."""
    output_modes: tuple[OutputMode, ...] = ("native", "tool", "prompted")

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None,
        base_url: str | None,
        client: AsyncOpenAI | None,
        max_retries: int,
        price: Price | None,
        settings: ModelSettings = NO_SETTINGS,
    ) -> None:
        self.name = model
        self._price = price
        self._api_key = api_key
        self._base_url = base_url
        self._given = client
        self._max_retries = max_retries
        self._clients: dict[asyncio.AbstractEventLoop, tuple[AsyncOpenAI, AsyncGenerator[None]]] = {}
        self._asks_for_usage = True
        if base_url is not None:
            _check(base_url, model)
        self._set(checked_settings(settings, f"model {model!r}: settings"))

    def with_settings(self, settings: ModelSettings) -> Self:
        """Return this model with some settings in the place of its own; connections are shared.

        Raises:
            AgentDefinitionError: Names every setting that it cannot do.
        """
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._set(self.settings.under(settings))
        return made

    def _set(self, settings: ModelSettings) -> None:
        self.settings = settings
        self._timeout = _SECONDS if settings.timeout is None else settings.timeout
        self._fixed = patched(body_of(settings, self._fields(), self.name), settings.extra, keep_none=True)

    def _fields(self) -> Fields:
        """Return the settings that it can do."""
        return {}

    def _tool_choice(self, composition: Composition) -> str | None:
        """Return which tools the model may call; None where the endpoint is to decide.

        Raises:
            ModelRequestError: It has to call a tool that is not offered.
        """
        choice = self.settings.tool_choice
        if choice not in (None, "auto", "none"):
            if any(message.role == "tool" for message in composition.intermediate):
                return "auto" if composition.tools else None
            offered = [tool.name for tool in composition.tools]
            if not offered or (choice != "required" and choice not in offered):
                there = f"the tools are {', '.join(offered)}" if offered else "there are no tools"
                raise ModelRequestError(f"settings: tool_choice={choice!r}, and {there}", model=self.name)
        return choice if composition.tools else None

    @abstractmethod
    def _body(self, composition: Composition) -> dict[str, object]:
        """Return the body of the request."""

    @abstractmethod
    def _reader(self, composition: Composition) -> ReplyReader:
        """Return what reads the reply."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, host={self.host!r})"

    @property
    def host(self) -> str:
        """Host and port of the endpoint, without credentials."""
        return host_of(str(self._given.base_url) if self._given else self._endpoint())

    @property
    def price(self) -> Price | None:
        """What it costs: the price it was given, or that of a model of this name where the provider itself is asked."""
        return self._price if self._price is not None else known_price(self.host, self.name)

    async def request(self, composition: Composition, *, on_text: Callable[[str], None] | None = None) -> Reply:
        """Send the composition and return the reply; stream it when there is a listener.

        Raises:
            ModelAuthError: There is no key, or the endpoint refuses it.
            ModelRequestError: The endpoint does not accept the request.
            ModelRateLimited: Still 429 after the retries.
            ModelUnavailable: Unreachable, too slow or failing after the retries.
            ModelInterrupted: The stream broke off; carries the text until then.
            ModelReplyError: The endpoint answered something else than a completion.
        """
        if _REFUSED.get():
            raise NetworkRefused(f"{self!r} would send a request: no real model is allowed here", model=self.name)
        try:
            return await self._request(composition, on_text)
        except ModelError as error:
            _cut_chain(error, self._secrets())
            raise

    async def _request(self, composition: Composition, on_text: Callable[[str], None] | None) -> Reply:
        client = await self._client()
        body, reader = patched(self._body(composition), self._fixed), self._reader(composition)
        if on_text is not None:
            return await self._stream(client, body, reader, on_text)
        with self._translating(client):
            # Not chat.completions.create: it walks every message by type, which is most of the cost of a long prompt.
            answer = await client.post(self.path, body=body, cast_to=object, options=self._options())
            reader.add(json.loads(answer) if isinstance(answer, str) else answer)
            return reader.reply(self.name)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without connections.

        Raises:
            TypeError: It holds a secret: a key, a client, headers, or a base URL with a password.
        """
        has_secret = self._api_key or self._given is not None or self.settings.headers
        if has_secret or "@" in (self._base_url or ""):
            raise TypeError(
                f"{self!r} cannot be pickled or copied, as it holds a key, a client or a password: make it again "
                "there, with the key in OPENAI_API_KEY"
            )
        return self.__dict__ | {"_clients": {}}

    async def aclose(self) -> None:
        """Close the connections that the running event loop opened."""
        kept = self._clients.get(asyncio.get_running_loop())
        if kept is not None:
            await kept[1].aclose()

    async def _stream(
        self, client: AsyncOpenAI, body: dict[str, object], reader: ReplyReader, on_text: Callable[[str], None]
    ) -> Reply:
        async with await self._open_stream(client, body) as stream:
            while True:
                with self._translating(client, reader):
                    try:
                        text = reader.add(await anext(stream))
                    except StopAsyncIteration:
                        break
                if text:  # outside: what a listener raises is the listener's
                    await passed_on(text, on_text)
        tail = reader.end()
        if reader.started and reader.finish_reason is None:
            raise ModelInterrupted.after(reader.text, "no finish reason", model=self.name, host=self.host)
        if tail:
            await passed_on(tail, on_text)
        with self._translating(client, reader):
            return reader.reply(self.name)

    async def _open_stream(self, client: AsyncOpenAI, body: dict[str, object]) -> AsyncStream[object]:
        from openai import AsyncStream, BadRequestError, UnprocessableEntityError

        with self._translating(client):
            while True:
                options = {"stream_options": {"include_usage": True}} if self._asks_for_usage else {}
                try:
                    return await client.post(
                        self.path,
                        body={**options, **body, "stream": True},
                        cast_to=object,
                        options=self._options(),
                        stream=True,
                        stream_cls=AsyncStream[object],
                    )
                except (BadRequestError, UnprocessableEntityError) as error:
                    if not options or "stream_options" not in error.response.text:
                        raise
                    self._asks_for_usage = False  # an older server: do without the usage from now on

    def _options(self) -> Any:
        from openai import Timeout

        timeout = Timeout(self._timeout, connect=min(self._timeout, _CONNECT_SECONDS))
        return {"timeout": timeout, **({"headers": dict(self.settings.headers)} if self.settings.headers else {})}

    @contextmanager
    def _translating(self, client: AsyncOpenAI, reader: ReplyReader | None = None) -> Iterator[None]:
        """Raise what goes wrong inside as one of our errors."""
        try:
            yield
        except Exception as error:
            from agentkit.models.openai_errors import translate

            received = None if reader is None else reader.text
            ours = translate(
                error, model=self.name, host=self.host, secrets=self._secrets(), path=self.path, received=received
            )
            if ours is None:
                raise
            raise ours from error

    async def _client(self) -> AsyncOpenAI:
        """Return the client of the running event loop: connections cannot move between loops."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        kept = self._clients.get(loop)
        if kept is None:
            for ended in [known for known in self._clients if known.is_closed()]:
                self._clients.pop(ended, None)  # it was closed without a word to its generators
            client = self._new_client()
            keeper = _close_with_loop(client, lambda: self._clients.pop(loop, None))
            kept = self._clients[loop] = client, keeper
            await anext(keeper)
        return kept[0]

    def _new_client(self) -> AsyncOpenAI:
        try:
            from openai import AsyncOpenAI, DefaultAsyncHttpx2Client, Timeout
        except ImportError as error:
            raise ModelError(
                "needs the openai SDK: pip install 'agentkit-prompt-tree[openai]'", model=self.name
            ) from error
        return AsyncOpenAI(
            api_key=self._key(),
            base_url=_check(self._endpoint(), self.name),
            timeout=Timeout(self._timeout, connect=min(self._timeout, _CONNECT_SECONDS)),
            max_retries=self._max_retries,
            http_client=DefaultAsyncHttpx2Client(verify=_certificates()),
        )

    def _secrets(self) -> tuple[str, ...]:
        key = self._given.api_key if self._given else self._api_key or os.environ.get("OPENAI_API_KEY") or ""
        values = [key.strip(), *[value.strip() for value in self.settings.headers.values()]]
        secrets = [part for value in values for part in (value, value.partition(" ")[2].strip())]  # "Bearer KEY"
        return tuple([secret for secret in secrets if len(secret) >= _MIN_SECRET])

    def _endpoint(self) -> str:
        return self._base_url or os.environ.get("OPENAI_BASE_URL") or OFFICIAL

    def _key(self) -> str:
        key = (self._api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
        if not key and self._endpoint() == OFFICIAL:
            raise ModelAuthError(
                "there is no API key: set OPENAI_API_KEY (or pass api_key=), or set OPENAI_BASE_URL (base_url=) to the "
                "address of a server that needs none",
                model=self.name,
                host=self.host,
            )
        if not all("!" <= character <= "~" for character in key):
            raise ModelAuthError(
                "the API key (OPENAI_API_KEY or api_key=) holds a space, a line break or a character beyond ASCII, "
                "which no header can carry: copy it again",
                model=self.name,
                host=self.host,
            )
        return key or _NO_KEY


async def _close_with_loop(client: AsyncOpenAI, forget: Callable[[], object]) -> AsyncGenerator[None]:
    """Close `client` with `aclose`, or when its event loop ends: loops finish the generators begun in them."""
    try:
        yield
    finally:
        forget()
        await client.close()


@lru_cache(maxsize=1)
def _certificates() -> SSLContext:
    """Read the certificates once: it is nearly all that a client costs, and `run_sync` needs one per call."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


def _check(url: str, model: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        if known and ("?" in url or "#" in url):
            raise ModelRequestError(
                f"base_url (OPENAI_BASE_URL) has a query or a fragment, which may hold a secret: give the address of "
                f"{host_of(url)} without, and a key as api_key=; to send more, give a client of yours as client=",
                model=model,
            )
    except ValueError:  # an unfinished IPv6 address, or a port that is no number
        known = False
    if not known:
        raise ModelRequestError(
            f"base_url (OPENAI_BASE_URL) must be an address such as http://localhost:8000/v1, got {_shown(url)!r}",
            model=model,
        )
    return url


def _shown(url: str) -> str:
    """Return an address without what may be a secret: what stands before an @, a query and a fragment."""
    return url.rpartition("@")[2].partition("?")[0].partition("#")[0]


def _cut_chain(error: BaseException, secrets: Sequence[str]) -> None:
    """Take out of the chain of an error what quotes the key: `raise ... from None` leaves it in `__context__`."""
    seen = {id(error)}
    todo, forms = [error], [form for secret in secrets for form in spellings(secret)]
    while forms and todo:
        at = todo.pop()
        for name in ("__cause__", "__context__"):
            other = getattr(at, name)
            if other is None or id(other) in seen:
                continue
            sent = getattr(getattr(other, "request", None), "headers", {})
            texts = "\n".join((str(other), repr(other), repr(vars(other)), *sent.values()))
            if any(form in texts for form in forms):
                setattr(at, name, None)
            else:
                seen.add(id(other))
                todo.append(other)


def secrets_of(model: object) -> tuple[str, ...]:
    """Return what a model sends that must not be shown, so that it can be masked: its key, and values of headers."""
    return model._secrets() if isinstance(model, EndpointModel) else ()


def host_of(url: str) -> str:
    """Return host and port of an address, without credentials, query and fragment."""
    return _shown(url.partition("://")[2].partition("/")[0])


@contextmanager
def no_real_models() -> Iterator[None]:
    """Refuse every request to a model over a network until the end of the block: for tests.

    Raises, in the run that tries:
        NetworkRefused: Names the model.
    """
    token = _REFUSED.set(True)
    try:
        yield
    finally:
        _REFUSED.reset(token)
